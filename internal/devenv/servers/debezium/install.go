// Where Debezium is installed.

package debeziumserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/kafkaserver"
)

// DebeziumVersion is the one that scripts/debezium.sh fetches; ConnectVersion is that of the Kafka
// Connect next to it.
const (
	DebeziumVersion = "3.6.1.Final"
	ConnectVersion  = "4.3.1"
)

const debeziumMissing = "Debezium " + DebeziumVersion + " or a Java 21 to run it is not installed; install them with: make deps-debezium"

// debeziumInstall is where scripts/debezium.sh has put Debezium Server and Kafka Connect, and the
// Java that it has found.
type debeziumInstall struct{ dir, java string }

func findDebezium() (debeziumInstall, error) {
	dir, err := processes.CacheDir()
	if err != nil {
		return debeziumInstall{}, fmt.Errorf("find Debezium: %w: %s", err, debeziumMissing)
	}
	dir = filepath.Join(dir, "debezium-"+DebeziumVersion)
	java, err := os.ReadFile(filepath.Join(dir, "java"))
	if err != nil {
		return debeziumInstall{}, fmt.Errorf("find Debezium: %w: %s", err, debeziumMissing)
	}
	install := debeziumInstall{dir: dir, java: strings.TrimSpace(string(java))}
	if given := os.Getenv("CDC_RELAY_JAVA"); given != "" {
		install.java = given
	}
	if _, err := exec.LookPath(install.java); err != nil {
		return debeziumInstall{}, fmt.Errorf("find Java for Debezium: %w: %s", err, debeziumMissing)
	}
	return install, nil
}

// command runs a class with the class path. From Java 24 on Debezium has to be let into java.lang;
// before it does no harm.
func (d debeziumInstall) command(dir, classpath string, more []string, class string, args ...string) *exec.Cmd {
	all := append([]string{"-Xmx512m", "-XX:-UsePerfData", "-Djava.io.tmpdir=.", "--add-opens", "java.base/java.lang=ALL-UNNAMED"}, more...)
	all = append(all, "-cp", classpath, class)
	cmd := exec.Command(d.java, append(all, args...)...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TZ=UTC", "HOME=" + dir}
	return cmd
}

// writeJavaProperties writes a file as java.util.Properties reads it, in UTF-8 with everything else
// escaped.
func writeJavaProperties(path string, properties map[string]string) error {
	var b strings.Builder
	for name, value := range sorted(properties) {
		fmt.Fprintf(&b, "%s=%s\n", name, asciiProperty(value))
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}

// asciiProperty also keeps a leading space, which Java would skip, and what is not ASCII, which it
// would read as Latin-1.
func asciiProperty(value string) string {
	var b strings.Builder
	for i, r := range kafkaserver.EscapeProperty(value) {
		switch {
		case i == 0 && r == ' ':
			b.WriteString(`\ `)
		case r < 0x80:
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04X\u%04X`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		}
	}
	return b.String()
}
