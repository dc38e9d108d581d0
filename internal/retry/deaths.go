package retry

import (
	"cmp"

	"github.com/cdc-relay/cdc-relay/internal/retry/store"
	"go.uber.org/zap"
)

// tellDeath logs a dead letter by name, and tells the hook. (Of a flood the log names some.)
func (c *Config) tellDeath(row *store.Row, r store.Result) {
	if hook := c.Hooks.Buried; hook != nil {
		hook(&row.Event, cmp.Or(r.Reason, row.Reason), r.Attempts)
	}
	c.Log.Warn("event became a dead letter: `cdc-relay dead-letters` lists, replays and discards them", c.about(&row.Event,
		zap.Int64("n", row.N), zap.String("class", r.Class.String()), zap.String("reason", string(r.Reason)),
		zap.String("destination", r.Destination), zap.String("fault", r.Words))...)
}

// written is the result that a row was written with.
func written(row *store.Row) store.Result {
	return store.Result{Row: row, Class: row.Class, Reason: row.Reason, Words: row.Words, Destination: row.Destination, Attempts: row.Attempts}
}
