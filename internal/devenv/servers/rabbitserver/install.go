// Where RabbitMQ is installed.

package rabbitserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// rootVariable names the folder of another RabbitMQ than the system's, as scripts/rabbitmq.sh has
// fetched it: all brokers of the process are of that version.
const rootVariable = "CDC_RELAY_TEST_RABBITMQ_ROOT"

const rabbitMissing = "RabbitMQ (rabbitmq-server, rabbitmqctl, epmd) is not installed; install it with: make deps (as root: apt-get install -y --no-install-recommends rabbitmq-server)"

// install is where the programs of a broker are.
type install struct {
	bin  string // directory of rabbitmq-server and rabbitmqctl, as they see it
	root string // its usr is their /usr; "": they have the system's
}

// debianBin has the plain scripts of Debian's package. Its /usr/sbin/rabbitmq-server is a wrapper
// that changes user and directory.
const debianBin = "/usr/lib/rabbitmq/bin"

func findRabbitMQ() (install, error) {
	if root := os.Getenv(rootVariable); root != "" {
		if _, err := os.Stat(filepath.Join(root, debianBin, "rabbitmq-server")); err != nil {
			return install{}, fmt.Errorf("find the RabbitMQ of %s: %w; fetch it with: make deps-all", rootVariable, err)
		}
		if _, err := exec.LookPath("unshare"); err != nil {
			return install{}, fmt.Errorf("find unshare, which gives RabbitMQ a /usr of its own: %w: %s", err, rabbitMissing)
		}
		return install{debianBin, root}, nil
	}
	if _, err := exec.LookPath("epmd"); err != nil {
		return install{}, fmt.Errorf("find epmd: %w: %s", err, rabbitMissing)
	}
	if _, err := os.Stat(filepath.Join(debianBin, "rabbitmq-server")); err == nil {
		return install{bin: debianBin}, nil
	}
	path, err := exec.LookPath("rabbitmq-server")
	if err != nil {
		return install{}, fmt.Errorf("find rabbitmq-server: %w: %s", err, rabbitMissing)
	}
	return install{bin: filepath.Dir(path)}, nil
}

// command runs a program of the broker: one of RabbitMQ's, or one of Erlang's. With a root of its
// own it sees that release's files in place of the system's, in a mount namespace that ends with
// it; everything else is where it is. The shell becomes the program: their process id is one.
func (i install) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	if i.root == "" {
		return exec.CommandContext(ctx, program, args...)
	}
	own := []string{"--mount"}
	if os.Getuid() != 0 {
		own = append(own, "--map-root-user")
	}
	own = append(own, "sh", "-c", `mount --bind "$0/usr" /usr && exec "$@"`, i.root, program)
	return exec.CommandContext(ctx, "unshare", append(own, args...)...)
}

// has reports whether a program of Erlang's is there.
func (i install) has(program string) bool {
	if i.root != "" {
		program = filepath.Join(i.root, "usr/bin", program)
	}
	_, err := exec.LookPath(program)
	return err == nil
}

// script is the path of one of RabbitMQ's scripts.
func (i install) script(name string) string { return filepath.Join(i.bin, name) }
