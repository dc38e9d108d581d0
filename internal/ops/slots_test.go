package ops

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// besides is busy with two slots of others, and one of which nothing was heard for long.
func besides() Snapshot {
	s := busy()
	s.OtherSlots = []Slot{
		{Name: "debezium", Checked: noon, ConfirmedFlush: 0x1400, Restart: 0x400, Current: 0x1800, WALStatus: "extended", Database: "shop", Plugin: "pgoutput", BehindSince: noon.Add(-90 * time.Second)},
		{Name: "other_relay", Checked: noon.Add(-2 * time.Second), ConfirmedFlush: 0x1800, Restart: 0x1800, Current: 0x1800, Active: true, WALStatus: "reserved", SpilledBytes: 7},
		{Name: "unheard_of", Checked: noon.Add(-2 * time.Minute), BehindSince: noon.Add(-time.Hour)},
	}
	s.OtherTotal = 123
	return s
}

func TestMetricsOfAllSlots(t *testing.T) {
	lines := scrape(t, watched(besides()))
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
	for _, line := range lines {
		if strings.Contains(line, "unheard_of") {
			t.Errorf("nobody knows that: %s", line)
		}
	}
}

func TestSlotsOfTheAPI(t *testing.T) {
	snapshot := besides()
	now := time.Now()
	snapshot.OldestUnsettled, snapshot.Slot.Checked = now.Add(-time.Hour), now
	for i := range snapshot.OtherSlots[:2] {
		o := &snapshot.OtherSlots[i]
		since := o.Checked.Sub(o.BehindSince)
		o.Checked = now
		if !o.BehindSince.IsZero() {
			o.BehindSince = now.Add(-since)
		}
	}
	base := serve(t, func(c *Config) { c.Snapshot = func() Snapshot { return snapshot } })
	var got Slots
	if code, _ := ask(t, http.MethodGet, base+"/api/v1/slots", "", &got); code != http.StatusOK {
		t.Fatalf("it answers %d", code)
	}
	var said []string
	for _, i := range got.Items {
		lag := "?"
		if i.LagSeconds != nil {
			lag = fmt.Sprint(int(*i.LagSeconds) / 10 * 10)
		}
		said = append(said, fmt.Sprintf("%s own=%t %s %s lag=%d/%s by %s retained=%d active=%t %s %s", i.Name, i.Own, i.Database, i.Plugin, i.LagBytes, lag, i.LagFrom, i.RetainedBytes, i.Active, i.WALStatus, i.ConfirmedFlushLSN))
	}
	want := []string{
		"cdc_relay own=true shop pgoutput lag=2048/3600 by commits retained=4096 active=true reserved 0/1000",
		"debezium own=false shop pgoutput lag=1024/90 by wal retained=5120 active=false extended 0/1400",
		"other_relay own=false   lag=0/0 by wal retained=0 active=true reserved 0/1800",
	}
	if !slices.Equal(said, want) || got.Total != 124 {
		t.Errorf("of %d slots it shows\n%s\nwant\n%s", got.Total, strings.Join(said, "\n"), strings.Join(want, "\n"))
	}
	snapshot.Phase, snapshot.OtherSlots, snapshot.OtherTotal = Standby, nil, 0
	got = Slots{}
	if ask(t, http.MethodGet, base+"/api/v1/slots", "", &got); len(got.Items) != 1 || got.Items[0].LagSeconds != nil || got.Total != 1 {
		t.Errorf("on a standby it shows %+v", got)
	}
	var status Status
	if ask(t, http.MethodGet, base+"/api/v1/status", "", &status); status.State != StateStandby || status.Slot.LagSeconds != nil {
		t.Errorf("on a standby the status is %s, lag %v", status.State, status.Slot.LagSeconds)
	}
}
