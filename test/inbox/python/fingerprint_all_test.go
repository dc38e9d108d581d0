//go:build testall

package python

import (
	"os/exec"
	"testing"
)

// The consumer in Python has the hashes that the inbox has, in every form of an event.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", "-B", "-c", `
import json, types, consumer
for event in json.load(open("../../inbox/testdata/content_hash.json", encoding="utf-8")):
    for i, form in enumerate(event["forms"]):
        message = types.SimpleNamespace(message_id="1", type="created", content_type=form["content_type"],
            headers={"aggregate_type": "order", "aggregate_id": "42", **form["headers"]})
        got = consumer.fingerprint(message, form["body"].encode()).hex()
        assert got == event["hash"], (event["event"], i, got)
    print(event["event"])
`)
	cmd.Dir = "../../../examples/python"
	if out, err := cmd.CombinedOutput(); err != nil || len(out) == 0 {
		t.Errorf("%v:\n%s", err, out)
	}
}
