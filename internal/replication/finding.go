// The lines that Check has, and how they are made.

package replication

import (
	"cmp"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Finding is one line of a preflight check.
type Finding struct {
	Name   string `json:"name"`
	Level  string `json:"level"` // ok, warn or fail
	Detail string `json:"detail"`
	Mend   string `json:"mend,omitempty"` // to copy
}

// The levels of a Finding.
const (
	LevelOK   = "ok"
	LevelWarn = "warn"
	LevelFail = "fail"
)

func fatalOr(c *Config, err error) error {
	if stop := fatalConnect(c, err, false, c.longAgo()); stop != nil {
		return stop
	}
	return err
}

// longAgo is a start so early that no patience is left: commands that ask once do not wait.
func (c *Config) longAgo() time.Time { return time.Time{} }

type checker struct {
	c    *Config
	pool *pgxpool.Pool
	list []Finding

	user, database string // once reached
}

// roleName is the relay's role as SQL.
func (k *checker) roleName() string { return quoteName(k.user) }

func (k *checker) add(name, good string, err error) bool {
	f := Finding{Name: name, Level: LevelOK, Detail: good}
	if err != nil {
		f.Level, f.Detail, f.Mend = LevelFail, oneLine{err}.Error(), cmp.Or(mendConnect(err), mendAbsent(err))
		var stop *outbox.Stop
		if errors.As(err, &stop) {
			short := *stop
			short.Mend = ""
			f.Detail, f.Mend = short.Error(), stop.Mend
		}
	}
	k.list = append(k.list, f)
	return err == nil
}

func (k *checker) fail(name, detail, mend string) {
	k.list = append(k.list, Finding{Name: name, Level: LevelFail, Detail: detail, Mend: mend})
}

// unasked is the finding of a question whose answer is good to know, and that failed. It reports
// whether it did.
func (k *checker) unasked(name string, err error) bool {
	if err == nil {
		return false
	}
	mend := ""
	if pgCode(err) == "42501" {
		mend = "GRANT pg_monitor TO " + k.roleName()
	}
	k.warn(name, "could not be asked: "+oneLine{err}.Error(), mend)
	return true
}

func (k *checker) warn(name, detail, mend string) {
	k.list = append(k.list, Finding{Name: name, Level: LevelWarn, Detail: detail, Mend: mend})
}
