package retry

import (
	"cmp"
	"sync"
	"time"

	"go.uber.org/zap"
)

// deaths logs each dead letter by name, at most deathsPerSecond of them: of a flood, that more have died says enough.
type deaths struct {
	of *Config

	mu     sync.Mutex // writer and feeder
	second int64      // Unix, of the last line
	lines  int        // in it
	silent int        // not named since
}

const deathsPerSecond = 10

func (d *deaths) tell(row *Row, r Result) {
	if hook := d.of.Hooks.Buried; hook != nil {
		hook(&row.Event, cmp.Or(r.Reason, row.Reason), r.Attempts)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now().Unix()
	if now != d.second {
		d.second, d.lines = now, 0
	}
	if d.lines++; d.lines > deathsPerSecond {
		d.silent++
		return
	}
	fields := d.of.about(&row.Event, zap.Int64("n", row.N), zap.String("class", r.Class.String()), zap.String("reason", string(r.Reason)),
		zap.String("destination", r.Destination), zap.String("fault", r.Words))
	if d.silent > 0 {
		fields = append(fields, zap.Int("and_others_before", d.silent))
		d.silent = 0
	}
	d.of.Log.Warn("event became a dead letter: `cdc-relay deadletters` lists, replays and discards them", fields...)
}

// written is the result that a row was written with.
func written(row *Row) Result {
	return Result{Row: row, Class: row.Class, Reason: row.Reason, Words: row.Words, Destination: row.Destination, Attempts: row.Attempts}
}
