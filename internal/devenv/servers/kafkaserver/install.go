// Where Kafka is installed.

package kafkaserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// kafkaVersion is the one that scripts/kafka.sh fetches; dirVariable names the directory of another
// one, as it prints it.
const (
	kafkaVersion = "4.3.1"
	dirVariable  = "CDC_RELAY_TEST_KAFKA_DIR"
)

const kafkaMissing = "Apache Kafka " + kafkaVersion + " or Java is not installed; install them with: make deps"

// kafkaInstall is where scripts/kafka.sh has put Kafka.
type kafkaInstall struct {
	java    string
	classes string // a file with java's argument for the class path
	// Java's archive of loaded classes, which saves half of the start; "": there is none
	archive  string
	features string // the bootstrap.checkpoint of a formatted data directory
}

func findKafka() (kafkaInstall, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return kafkaInstall{}, fmt.Errorf("find java: %w: %s", err, kafkaMissing)
	}
	dir := os.Getenv(dirVariable)
	if dir == "" {
		cache, err := processes.CacheDir()
		if err != nil {
			return kafkaInstall{}, fmt.Errorf("find Kafka: %w: %s", err, kafkaMissing)
		}
		dir = filepath.Join(cache, "kafka-"+kafkaVersion)
	}
	k := kafkaInstall{
		java: java, classes: filepath.Join(dir, "classpath"), archive: filepath.Join(dir, "classes.jsa"),
		features: filepath.Join(dir, "bootstrap.checkpoint"),
	}
	if _, err := os.Stat(k.features); err != nil {
		return kafkaInstall{}, fmt.Errorf("find Kafka: %w: %s", err, kafkaMissing)
	}
	if _, err := os.Stat(k.archive); err != nil {
		k.archive = ""
	}
	return k, nil
}

// command runs a class of Kafka. The archive is used when it fits the Java that is installed, and
// passed over when not. Java's own messages go to standard error, and only those of errors.
func (k kafkaInstall) command(more []string, class string, args ...string) *exec.Cmd {
	all := []string{
		"-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
		"-Xlog:disable", "-Xlog:all=error:stderr", "-Dlog4j2.level=INFO",
		"-Djava.io.tmpdir=.", // where lz4's library is unpacked, and stays when Java is killed
	}
	if k.archive != "" {
		all = append(all, "-XX:SharedArchiveFile="+k.archive)
	}
	all = append(all, more...)
	all = append(all, "@"+k.classes, class)
	return exec.Command(k.java, append(all, args...)...)
}
