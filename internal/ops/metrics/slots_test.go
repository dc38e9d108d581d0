package metrics

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/ops"
	"github.com/cdc-relay/cdc-relay/internal/ops/opstest"
)

func TestMetricsOfAllSlots(t *testing.T) {
	lines := scrape(t, watched(opstest.BusyWithOtherSlots()))
	mustHave(t, lines,
		`outbox_slot_lag_seconds{slot="cdc_relay"} 3`,
		`outbox_slot_lag_seconds{slot="debezium"} 90`,
		`outbox_slot_lag_seconds{slot="other_relay"} 0`,
		`outbox_slot_lag_bytes{slot="debezium"} 1024`,
		`outbox_slot_lag_bytes{slot="other_relay"} 0`,
		`outbox_slot_retained_bytes{slot="debezium"} 5120`,
		`outbox_slot_active{slot="debezium"} 0`,
		`outbox_slot_active{slot="other_relay"} 1`,
		`outbox_slot_wal_status{slot="debezium",status="extended"} 1`,
		`outbox_slot_wal_status{slot="debezium",status="lost"} 0`,
		`outbox_slot_spilled_bytes_total{slot="other_relay"} 7`,
	)
	mustLack(t, lines, "outbox_slot_synced", "outbox_slot_waiting_for_standby")
	for _, line := range lines {
		if strings.Contains(line, "unheard_of") {
			t.Errorf("nobody knows that: %s", line)
		}
	}
}

// A slot that is no failover slot waits for no standby.
func TestMetricOfAStandbyThatIsWaitedFor(t *testing.T) {
	s := opstest.Busy()
	s.Slot.Failover = true
	mustHave(t, scrape(t, watched(s)), `outbox_slot_waiting_for_standby{slot="cdc_relay"} 0`)
	s.WaitingForStandby = []string{"b"}
	mustHave(t, scrape(t, watched(s)), `outbox_slot_waiting_for_standby{slot="cdc_relay"} 1`)
}

// The other hosts are the leader's to report.
func TestMetricOfOtherHosts(t *testing.T) {
	s := opstest.Busy()
	s.Hosts = []ops.HostSlot{{Host: "a:5432", Synced: true}, {Host: "b:5432"}}
	mustHave(t, scrape(t, watched(s)), `outbox_slot_synced{host="a:5432"} 1`, `outbox_slot_synced{host="b:5432"} 0`)
	s.Phase = ops.Standby
	mustLack(t, scrape(t, watched(s)), "outbox_slot_synced")
}
