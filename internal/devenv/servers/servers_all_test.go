//go:build testall

package servers

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/processes"
)

// An address in the environment is where SharedRabbitMQ goes; OwnRabbitMQ is ours all the same.
func TestOwnBrokerIsOursWhateverIsGiven(t *testing.T) {
	const given = "CDC_RELAY_TEST_RABBITMQ"
	// the test itself runs in a child, to which our shared broker is given
	if os.Getenv(given) == "" {
		ctx := await.Context(t)
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v")
		cmd.Env = append(processes.EnvironWithout(processes.OwnerVariable), given+"="+SharedRabbitMQ(t).URL())
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Fatalf("with an address in the environment: %v: %s", err, out)
		}
		return
	}
	own, shared := OwnRabbitMQ(t), SharedRabbitMQ(t)
	if shared.URL() != os.Getenv(given) || own.Addr() == shared.Addr() {
		t.Fatalf("shared is %s, own is %s", shared.Addr(), own.Addr())
	}
	if _, err := own.Ctl(await.Context(t), "list_users"); err != nil {
		t.Error(err)
	}
}
