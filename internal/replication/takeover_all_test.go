//go:build testall

package replication

import (
	"errors"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

func TestTakeoverIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(b *bench, o *otherTool)
		code    int
		words   string
	}{
		"its own slot":      {func(b *bench, o *otherTool) { o.slot = b.cfg.Slot }, event.ExitUsage, "choose another source.slot"},
		"no such slot":      {func(b *bench, o *otherTool) { o.slot = "none" }, event.ExitUsage, "does not exist"},
		"a relay's already": {func(b *bench, o *otherTool) { b.settledRun("a").endClean() }, event.ExitUsage, "is already used by a relay"},
		"another's place": {func(b *bench, o *otherTool) {
			_, _ = b.now(o)
			o.slot += "2"
			b.exec(`SELECT pg_create_logical_replication_slot($1, 'test_decoding')`, o.slot)
		}, event.ExitUsage, "replaces slot"},
		"from a relay": {func(b *bench, o *otherTool) {
			b.settledRun("a").endClean()
			o.slot = b.cfg.Slot
			b.cfg.Slot += "_second"
		}, event.ExitUsage, "its deferred events"},
		"a position beyond the WAL": {func(b *bench, o *otherTool) {
			_, _ = b.now(o)
			o.start()
			o.confirmTo(0xFFFFFFF000000000)
			o.kill()
		}, event.ExitOperator, "is not known"},
		"a physical slot": {func(b *bench, o *otherTool) {
			o.slot += "_p"
			b.exec(`SELECT pg_create_physical_replication_slot($1)`, o.slot)
			b.t.Cleanup(func() { b.exec(`SELECT pg_drop_replication_slot($1)`, o.slot) })
		}, event.ExitOperator, "physical"},
		"another database's": {func(b *bench, o *otherTool) {
			b.createSlotElsewhere()
			o.slot = b.cfg.Slot
			b.cfg.Slot += "_ours"
		}, event.ExitOperator, "belongs to database"},
		"an altered publication": {func(b *bench, o *otherTool) {
			o.start()
			_, _ = b.now(o)
			b.exec(`ALTER PUBLICATION p SET (publish = '')`)
			b.insert("hidden")
			b.exec(`ALTER PUBLICATION p SET (publish = 'insert')`)
			o.waitSeen("hidden")
			o.confirm()
			o.kill()
			b.waitNoWalsenderOf(o.slot)
		}, event.ExitOperator, "was altered"},
	} {
		t.Run(name, func(t *testing.T) {
			b := shared(t)
			o := b.newTool()
			test.prepare(b, o)
			_, err := b.now(o)
			var stop *event.Stop
			if !errors.As(err, &stop) || stop.Code != test.code || !strings.Contains(stop.What+stop.Fix, test.words) {
				t.Errorf("got %v, want code %d with %q", err, test.code, test.words)
			}
		})
	}
}

func TestTakeoverUnderLoadInGoodOrder(t *testing.T) { takeoverUnderLoad(t, true) }

func TestTakeoverAfterACrashAtMoreSteps(t *testing.T) {
	takeoverAfterACrash(t, map[string]func(b *bench, o *otherTool){
		"after its slot, made by an attempt without an answer": func(b *bench, o *otherTool) {
			b.begun(o)
			b.createSlot("pgoutput")
		},
		"while it waits": func(b *bench, o *otherTool) {
			p := b.through()
			k := b.take(o, asLongAsItTakes)
			k.waitTold("that the other slot is below", overlapping)
			p.Cut()
			k.stop()
			_, _ = k.wait()
			if err := p.Restore(); err != nil {
				b.t.Fatal(err)
			}
		},
	})
}
