package retry

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// deaths logs each dead letter by name, at most deathsPerSecond of them: of a flood, that more have died says enough.
type deaths struct {
	log *zap.Logger

	mu     sync.Mutex // writer and feeder
	second int64      // Unix, of the last line
	lines  int        // in it
	silent int        // not named since
}

const deathsPerSecond = 10

func (d *deaths) tell(row *Row, r Result) {
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
	fields := []zap.Field{
		zap.Int64("n", row.N), zap.String("event_id", name(&row.Event)), zap.Stringer("position", row.Event.Position),
		zap.String("class", r.Class.String()), zap.String("reason", string(r.Reason)), zap.String("destination", r.Destination), zap.String("fault", r.Words),
	}
	if d.silent > 0 {
		fields = append(fields, zap.Int("and_others_before", d.silent))
		d.silent = 0
	}
	d.log.Warn("event became a dead letter: `cdc-relay deadletters` lists, replays and discards them", fields...)
}

// written is the result that a row was written with.
func written(row *Row) Result {
	return Result{Row: row, Class: row.Class, Reason: row.Reason, Words: row.Words, Destination: row.Destination}
}
