package slot

import (
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/replicationtest"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// promotion is a promotion that is proven, for a test to spoil.
type promotion struct {
	promotedServer
	rec  *Record
	view *View
	id   Identity
	had  uint64 // was received
}

func proven() *promotion {
	return &promotion{
		promotedServer: promotedServer{slotName: "b"},
		rec: &Record{
			SystemID: "1", Timeline: 1, State: StateReady, FlushLimit: 300, Reported: 190, Settled: 200,
			Standbys: []string{"a", "b"}, OtherStandbys: true,
		},
		view: &View{Failover: true, Synced: true, ConfirmedFlush: 200},
		id:   Identity{SystemID: "1", Timeline: 3, left: map[int32]pglogrepl.LSN{1: 400, 2: 500}},
		had:  400,
	}
}

func (p *promotion) judge() error {
	c := &source.Config{Slot: "shop", Primary: new(source.Primary)}
	c.Primary.ReceivedWAL.Store(p.had)
	return p.checkProof(c, p.rec, p.view, p.id)
}

// What is proven goes on, and each thing that is not is named.
func TestPromotionIsProven(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*promotion){
		"all is there":                        func(*promotion) {},
		"the name is gone, all were named":    func(p *promotion) { p.slotName, p.rec.OtherStandbys = "", false },
		"the relay starts, and has no memory": func(p *promotion) { p.had = 0 },
	} {
		p := proven()
		if change(p); p.judge() != nil {
			t.Errorf("%s: %v", name, p.judge())
		}
	}
	for says, change := range map[string]func(*promotion){
		"another tool has copied it":         func(p *promotion) { p.view.Failover, p.view.Synced, p.view.ConfirmedFlush = false, false, 190 },
		"created after the promotion":        func(p *promotion) { p.view.Synced, p.view.Failover = false, false },
		"when it was the primary":            func(p *promotion) { p.view.Synced = false },
		"up to where everything was settled": func(p *promotion) { p.rec.Settled = 0 },
		"only up to 0/C7":                    func(p *promotion) { p.rec.Settled = 199 },
		"no relay ever reported more":        func(p *promotion) { p.rec.FlushLimit = 199 },
		"does not have timeline 1":           func(p *promotion) { delete(p.id.left, 1) },
		"restored to a point in time":        func(p *promotion) { p.target = true },
		"primary_slot_name is c here":        func(p *promotion) { p.slotName, p.rec.OtherStandbys = "c", false },
		"not every standby was named":        func(p *promotion) { p.slotName = "" },
		"(it named no standby)":              func(p *promotion) { p.slotName, p.rec.Standbys, p.rec.OtherStandbys = "", nil, false },
		"slot_name is b here, and sync":      func(p *promotion) { p.rec.Standbys = nil },
		"not synced by PostgreSQL":           func(p *promotion) { p.view.Temporary = true },
	} {
		p := proven()
		change(p)
		if stop := replicationtest.WantStop(t, p.judge(), event.ExitOperator, "slot_moved"); !strings.Contains(stop.What, says) {
			t.Errorf("it does not say %q: %s", says, stop.What)
		}
	}
	p := proven()
	p.had = 401 // the promoted server never had what this process has read
	replicationtest.WantStop(t, p.judge(), event.ExitOperator, "rolled_back")
}

// Only a later timeline of the same server is a promotion, and only a slot in use goes on.
func TestWhatIsNoPromotion(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*promotion){
		"an older timeline": func(p *promotion) { p.rec.Timeline = 4 },
		"the same timeline": func(p *promotion) { p.rec.Timeline = 3 },
		"another system":    func(p *promotion) { p.rec.SystemID = "2" },
		"not known":         func(p *promotion) { p.rec.SystemID, p.id.SystemID = "", "" },
		"to be adopted":     func(p *promotion) { p.rec.State = StateAdopt },
	} {
		p := proven()
		if change(p); p.rec.PromotedOn(p.id) {
			t.Error(name)
		}
	}
}
