package kafka

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// docs/failure-modes.md has each error code in one row, in the table of the class and with the
// reasons that it has here; what is in none is as its row of all others says.
func TestAnswersAreDocumented(t *testing.T) {
	type row struct{ class, reasons string }
	rows := map[int]row{}
	class := ""
	for line := range strings.Lines(pages.Section(t, "docs/failure-modes.md", "What Kafka answers")) {
		if found := regexp.MustCompile("^\\*\\*`([a-z]+)`\\*\\*").FindStringSubmatch(line); found != nil {
			class = found[1]
		}
		cells := strings.Split(line, "|")
		if len(cells) < 3 || strings.Contains(cells[1], "login") {
			continue
		}
		for _, found := range regexp.MustCompile(`\((-?\d+)\)`).FindAllStringSubmatch(cells[1], -1) {
			code, err := strconv.Atoi(found[1])
			must(t, err)
			if _, twice := rows[code]; twice {
				t.Errorf("code %d has two rows", code)
			}
			rows[code] = row{class, cells[2]}
		}
	}
	if len(rows) < 40 {
		t.Fatalf("only %d codes were found", len(rows))
	}
	for code := -1; code <= 150; code++ {
		v := verdictOf(int16(code))
		class, reason := v.class.String(), v.reason
		switch v.action {
		case actionConfirm:
			class = "confirmed"
		case actionRenew:
			class = "unavailable"
		default:
		}
		if fault := topicFault("t", int16(code)); fault.Reason != sink.NoLeader && v.action == actionResend {
			// a topic's, when metadata says so; while a batch is under way it may pass
			reason = fault.Reason
		}
		if reason != "" && !slices.Contains(sink.Rejections[v.class], reason) {
			t.Errorf("code %d is %s %s, a series that there is not", code, v.class, reason)
		}
		documented, ok := rows[code]
		switch {
		case !ok && (v.action != actionIsolate || v.class != sink.Transient):
			t.Errorf("code %d (%s), %s %s, has no row", code, kafkago.Error(code).Title(), class, reason)
		case ok && (documented.class != class || reason != "" && !strings.Contains(documented.reasons, "`"+string(reason)+"`")):
			t.Errorf("code %d is documented as %s, and is %s %s", code, documented, class, reason)
		}
	}
}
