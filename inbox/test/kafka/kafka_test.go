package kafka_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// A message has its effect, and then its offset is committed.
func TestMessages(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.publish(event("1", "a"), event("2", "a"))
	stop := r.run(r.consumer())
	r.wantEffects("1", "2")
	r.publish(event("3", "a"), event("2", "a"))
	r.wantEffects("1", "2", "3")
	r.wantOffset(0, 4)
	stop()
}

// The examples of the package, which find their servers by the environment.
func TestExamples(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(await.Context(t), "go", "test", "-count=1", "-v", "-run", "^Example", "github.com/cdc-relay/cdc-relay/inbox/kafka").CombinedOutput()
	await.Must(t, err)
	for _, example := range []string{"Example", "ExampleConsumer_Replay"} {
		if !strings.Contains(string(out), "--- PASS: "+example+" ") {
			t.Errorf("%s did not run:\n%s", example, out)
		}
	}
}
