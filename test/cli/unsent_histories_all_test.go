//go:build testall

package cli

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// usualHistories is how many TestHistories plays; the nightly tier has more.
var usualHistories = uint64(1)

// TestHistories: in random histories of transactions, changes of the table and the publication, and
// relays that are killed, a row that is gone was delivered, and one that was delivered goes.
func TestHistories(t *testing.T) {
	t.Parallel()
	pg, err := pgserver.Start(await.Context(t), pgserver.Options{NoFsync: true, Settings: map[string]string{"max_prepared_transactions": "20"}})
	must(t, err)
	t.Cleanup(func() { must(t, pg.Close()) })
	for seed := range usualHistories {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprint("shop", seed)
			must(t, pg.CreateDatabase(await.Context(t), name))
			h := &history{day: newDay(on(t, pg.URL(name))), r: rand.New(rand.NewPCG(seed, 0))}
			h.start()
			for range 25 {
				h.step()
			}
			for _, id := range h.prepared {
				h.sql(`COMMIT PREPARED '` + id + `'`)
			}
			h.control()
			h.deliveredGo()
			h.judge()
		})
	}
}

// history is a day of random steps.
type history struct {
	*day
	r        *rand.Rand
	steps    int
	prepared []string // transactions that wait
}

// rows is an INSERT of some rows.
func (h *history) rows() string {
	var values []string
	for range 1 + h.r.IntN(3) {
		values = append(values, fmt.Sprintf("({row%d})", len(h.all)+len(values)))
	}
	return `INSERT INTO outbox (id) VALUES ` + strings.Join(values, ", ")
}

func (h *history) step() {
	h.rig.t.Helper()
	h.steps++
	switch h.r.IntN(8) {
	case 0, 1:
		h.sql(h.rows())
	case 2:
		h.sql(`BEGIN; SAVEPOINT a; ` + h.rows() + `; SAVEPOINT b; INSERT INTO outbox (id) VALUES (gen_random_uuid()); ROLLBACK TO b; UPDATE outbox SET type = 'new'; COMMIT`)
	case 3: // of two transactions that wait one goes on
		if len(h.prepared) > 1 {
			h.sql(`COMMIT PREPARED '` + h.prepared[0] + `'`)
			h.prepared = h.prepared[1:]
			return
		}
		id := fmt.Sprint("p", h.steps)
		h.sql(`BEGIN; ` + h.rows() + `; PREPARE TRANSACTION '` + id + `'`)
		h.prepared = append(h.prepared, id)
	case 4: // the table is written again; it is locked by what is prepared
		if len(h.prepared) == 0 {
			h.sql(`ALTER TABLE outbox ADD COLUMN more` + fmt.Sprint(h.steps) + ` float8 DEFAULT random()`)
		}
	case 5: // rows that nobody sends
		h.stop()
		h.sql(`ALTER PUBLICATION {pub} DROP TABLE outbox`)
		h.unsent(h.rows())
		h.sql(`ALTER PUBLICATION {pub} ADD TABLE outbox`)
		h.start()
		h.control()
	case 6:
		must(h.rig.t, h.relay.Kill())
		h.output += h.relay.Stdout()
		h.rig.released()
		h.start()
		h.control()
	case 7: // copies of rows that were sent or not
		h.sql(`DELETE FROM outbox WHERE type = 'copy'; INSERT INTO outbox (id, type) SELECT gen_random_uuid(), 'copy' FROM outbox LIMIT 3`)
	}
}

// deliveredGo waits until no row is there that was delivered.
func (h *history) deliveredGo() {
	h.rig.t.Helper()
	eventually(h.rig.t, func() string {
		there := ask[[]string](h.rig, `SELECT array(SELECT id::text FROM outbox)`)
		for name := range h.all {
			if id := h.id(name); strings.Contains(h.output+h.relay.Stdout(), id) && slices.Contains(there, id) {
				return "row " + name + " was delivered, and is not deleted: " + h.relay.Log()
			}
		}
		return ""
	})
}
