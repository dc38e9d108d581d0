package command

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

func TestExitCodes(t *testing.T) {
	lost := &event.Stop{Code: event.ExitOperator, What: "the slot is gone"}
	for _, c := range []struct {
		err     error
		started bool
		want    int
	}{
		{nil, true, 0},
		{errors.New("anything"), true, 1},
		{errors.New("unknown flag"), false, 2},
		{lost, true, 3},
		{Logged{Err: fmt.Errorf("run: %w", lost)}, true, 3},
		{Logged{Err: errors.New("anything")}, true, 1},
	} {
		if got := ExitCode(c.err, c.started); got != c.want {
			t.Errorf("%v (started %v) exits %d, want %d", c.err, c.started, got, c.want)
		}
	}
}
