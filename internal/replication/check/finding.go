// The findings of a check, and how they are added.

package check

import (
	"cmp"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// Finding is one line of a preflight check.
type Finding struct {
	Name   string `json:"name"`
	Level  string `json:"level"` // ok, warn or fail
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"` // to copy
	// the ID that `cdc-relay accept` takes
	Finding string `json:"finding,omitempty"`
}

// The levels of a Finding.
const (
	LevelOK   = "ok"
	LevelWarn = "warn"
	LevelFail = "fail"
)

type checker struct {
	c    *source.Config
	pool *pgxpool.Pool
	list []Finding

	user, database string        // once reached
	id             slot.Identity // of the replication connection; zero: there is none
	found          *slot.Found   // nil: the schema could not be read
}

func (c *checker) add(name, good string, err error) bool {
	f := Finding{Name: name, Level: LevelOK, Detail: good}
	if err != nil && c.found != nil {
		err = c.found.Name(err, 0)
	}
	if err != nil {
		f.Level, f.Detail, f.Fix = LevelFail, source.OneLine(err).Error(), cmp.Or(source.FixConnect(err), source.FixAbsent(err))
		var stop *event.Stop
		if errors.As(err, &stop) {
			short := *stop
			short.Fix = ""
			f.Detail, f.Fix, f.Finding = short.Error(), stop.Fix, stop.Finding
		}
	}
	c.list = append(c.list, f)
	return err == nil
}

func (c *checker) fail(name, detail, fix string) {
	c.list = append(c.list, Finding{Name: name, Level: LevelFail, Detail: detail, Fix: fix})
}

// warnUnchecked adds a warning if an optional test failed to run, and reports whether it did.
func (c *checker) warnUnchecked(name string, err error) bool {
	if err == nil {
		return false
	}
	fix := ""
	if source.SQLState(err) == "42501" {
		fix = "GRANT pg_monitor TO " + source.QuoteName(c.user)
	}
	c.warn(name, "cannot be checked: "+source.OneLine(err).Error(), fix)
	return true
}

func (c *checker) warn(name, detail, fix string) {
	c.list = append(c.list, Finding{Name: name, Level: LevelWarn, Detail: detail, Fix: fix})
}
