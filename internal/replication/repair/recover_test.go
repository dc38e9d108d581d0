package repair

import (
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// Positions rise, are below the start of the slot, and none is a commit's.
func TestPositions(t *testing.T) {
	for _, start := range []pglogrepl.LSN{0x1000, 0x1003} {
		p := positionsBelow(start)
		last := event.Position{Commit: p.base}
		for _, rank := range []int64{0, 1, perCommit - 1, perCommit, commits*perCommit - 1} {
			pos, err := p.position(rank)
			if err != nil || !last.Less(pos) || pos.Commit >= start || pos.Commit%8 == 0 || pos.Commit < p.first() || pos.Commit > p.last() {
				t.Errorf("rank %d before %s: %s, after %s: %v", rank, start, pos, last, err)
			}
			if len(pos.String()) != 25 {
				t.Errorf("rank %d: %s is too long", rank, pos)
			}
			last = pos
		}
	}
	if _, err := positionsBelow(0x1000).position(commits * perCommit); err == nil {
		t.Error("there is a position beyond the last one")
	}
}

// Without a word of the operator rows go only in the order of their commits, all of it.
func TestChooseOrder(t *testing.T) {
	tables := []outboxTable{{Table: Table{Table: decode.Table{Schema: "public", Name: "outbox"}}}}
	for name, c := range map[string]struct {
		opt  RecoverOptions
		f    counts
		want order
		says string
	}{
		"tracked":             {RecoverOptions{}, counts{tracked: true, rows: 2}, byCommit, ""},
		"tracked and allowed": {RecoverOptions{Unordered: true}, counts{tracked: true, rows: 2}, byCommit, ""},
		"tracked too late":    {RecoverOptions{}, counts{tracked: true, rows: 2, untimed: 1}, "", "1 of 2 rows have no commit timestamp"},
		"not tracked":         {RecoverOptions{}, counts{rows: 2, untimed: 2}, "", "track_commit_timestamp is off"},
		"nothing to order":    {RecoverOptions{}, counts{}, unordered, ""},
		"allowed":             {RecoverOptions{Unordered: true}, counts{rows: 2, untimed: 2}, unordered, ""},
		"a dry run":           {RecoverOptions{DryRun: true}, counts{rows: 2, untimed: 2}, unordered, ""},
		"none is kept":        {RecoverOptions{Scope: event.Free}, counts{rows: 2, untimed: 2}, unneeded, ""},
		"by column":           {RecoverOptions{OrderBy: "at"}, counts{tracked: true, rows: 2, nulls: []int64{0}}, byNamed, ""},
		"by column of NULLs":  {RecoverOptions{OrderBy: "at"}, counts{tracked: true, rows: 2, nulls: []int64{1}}, "", `column "at" of table public.outbox is NULL in 1 rows`},
	} {
		got, err := chooseOrder(c.opt, c.f, tables, "")
		if got != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q, %v; want %q, %q", name, got, err, c.want, c.says)
		}
	}
}

func TestBefore(t *testing.T) {
	in := []row{{key: 1, command: 9}, {key: 2, text: "a", command: 1}, {key: 2, text: "b", command: 0}, {key: 2, text: "b", command: 1}, {key: 2, text: "b", command: 1, table: 1}}
	for i := range in {
		for j := range in {
			if in[i].isBefore(&in[j]) != (i < j) {
				t.Errorf("%+v before %+v: %t", in[i], in[j], i >= j)
			}
		}
	}
}

// unconnected is a sink that does not know a topic.
type unconnected struct{ name []byte }

func (u unconnected) Place(*event.Event) (sink.Place, bool) { return sink.Place{Lane: 3}, false }
func (u unconnected) Route(*event.Event) event.Route        { return event.Route{Name: u.name} }

// A row whose partition is not known has the digest of its topic, which its ordering group depends
// on, and no destination.
func TestPlaceOfAnUnknownTopic(t *testing.T) {
	topic := sink.ExchangeOrTopicOf([]byte("orders"))
	for name, want := range map[string]uint64{"orders": topic, "": 0} {
		of := unconnected{[]byte(name)}
		if name == "" {
			of.name = nil
		}
		e := rowMaker{run: &run{c: &source.Config{}, opt: RecoverOptions{Sink: of}}, incarnation: 4}
		ev := event.Event{ID: []byte("1"), Ordered: true, Hash: 12345}
		e.placeEvent(&ev)
		group, ordered := event.PerKey.Group(&ev, want)
		if r := e.row; r.ExchangeOrTopic != want || r.Dest != 0 || r.Group != group || r.Ordered != ordered || r.Incarnation != 4 || string(r.Event.Route.Name) != name {
			t.Errorf("%q: %+v", name, r)
		}
	}
}
