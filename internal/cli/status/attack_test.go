package status

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/cli/client"
	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/printable/printabletest"
)

// The status comes from whoever answers at the relay's address, and has texts of the broker and of
// the database: none is more than text, whichever field it is in.
func TestTerminalEscapesInEveryField(t *testing.T) {
	var up ops.Status
	var known databaseStatus
	printabletest.Fill(&up)
	printabletest.Fill(&known)
	up.Broker.PausedTotal, up.Deferred.RefusedTotal = 2, 2
	down := up
	up.Broker.Up, known.SlotExists, known.SlotActive = true, true, true
	down.Slot.CheckedAt = time.Time{}
	attack := errors.New(printabletest.Attack)
	for name, seen := range map[string]*snapshot{
		"the broker is up":     {status: &up},
		"the broker is down":   {status: &down},
		"the relay is silent":  {noAnswer: attack, database: &known},
		"another relay":        {noAnswer: &client.AnswerError{Text: printabletest.Attack}, databaseErr: attack},
		"the database is down": {noAnswer: attack, databaseErr: attack},
	} {
		s := screen{slot: "cdc_relay"}
		printabletest.CheckLines(t, name, s.frame(seen))
		for _, asJSON := range []bool{false, true} {
			var out bytes.Buffer
			if err := seen.print(&out, asJSON); err != nil {
				t.Error(err)
			}
			printabletest.CheckLines(t, name+", a line", out.String())
		}
		if seen.status == nil {
			continue
		}
		for _, colour := range []bool{false, true} {
			var out bytes.Buffer
			if err := writeStatus(&out, seen.status, colour); err != nil {
				t.Error(err)
			}
			text := out.String()
			for _, ours := range []string{"\x1b[1;31m", "\x1b[1;32m", "\x1b[1;33m", "\x1b[0m"} {
				text = strings.ReplaceAll(text, ours, "")
			}
			printabletest.CheckLines(t, name, text)
		}
	}
}
