//go:build testall

package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// The kinds of sink differ in what they hold when a relay is killed: each state on the kind on which kill_test.go does not show it.
func TestKilledOnTheOtherBroker(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		kind stand.Kind
		kill func(*stand.Stand)
	}{
		{"BeforeTheEventIsSent", stand.KindKafka, killedUnsent},
		{"BeforeTheConfirmArrives", stand.KindRabbitMQ, killedUnconfirmed},
		{"BeforeTheReportIsSent", stand.KindKafka, killedUnreported},
	} {
		t.Run(c.name, func(t *testing.T) { c.kind.On(t, c.kill) })
	}
}
