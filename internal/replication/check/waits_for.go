// What the primary says of its standbys: which of them it waits for before it sends something.

package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/replication/standbys"
)

// primary is what the server that is read says.
type primary struct {
	has             bool // failover slots: 17 and later
	there, failover bool // our slot
	named           []string
	physical        []standbys.Slot
}

func (c *checker) primary(ctx context.Context) (p primary, err error) {
	view, err := slot.Read(ctx, c.pool, c.c.Slot)
	if err != nil {
		return p, err
	}
	if view != nil {
		p.there, p.failover = true, view.Failover
	}
	err = c.pool.QueryRow(ctx, `SELECT current_setting('synchronized_standby_slots', true) IS NOT NULL`).Scan(&p.has)
	if err != nil || !p.has {
		return p, err
	}
	seen, err := standbys.Read(ctx, c.pool)
	if err != nil {
		return p, err
	}
	p.named = seen.Named
	p.physical = slices.DeleteFunc(seen.Slots, func(s standbys.Slot) bool { return s.Temporary })
	return p, nil
}

// waitsFor says which standbys the primary waits for before it sends something to the relay. One
// that it does not wait for may be behind the relay when it is promoted.
func (c *checker) waitsFor(p primary) {
	const name = "synchronized_standby_slots"
	var unnamed, all []string
	for _, s := range p.physical {
		all = append(all, s.Name)
		if !slices.Contains(p.named, s.Name) {
			unnamed = append(unnamed, s.Name)
		}
	}
	switch {
	case len(p.physical) == 0 && len(p.named) == 0:
		c.missesOf(name, "is empty, and no standby has a slot: the relay may have sent what a standby does not have, and stops with exit 3 after its promotion",
			"name a slot for each standby, with primary_slot_name = 'standby_1' there, and "+inPsql(onPrimary, "SELECT pg_create_physical_replication_slot('standby_1', true)",
				"ALTER SYSTEM SET synchronized_standby_slots = 'standby_1'", reloadConf))
		return
	case len(p.named) == 0:
		c.missesOf(name, "is empty: the relay may have sent what a standby does not have, and stops with exit 3 after its promotion",
			"leave out slots that belong to no standby, and "+setStandbys(all))
		return
	}
	for _, n := range p.named {
		i := slices.IndexFunc(p.physical, func(s standbys.Slot) bool { return s.Name == n })
		switch {
		case i < 0:
			c.fail(name, fmt.Sprintf("names %s, and there is no such physical slot: nothing is delivered", n),
				"take it out of synchronized_standby_slots; or, if its standby comes back, "+inPsql(onPrimary, fmt.Sprintf("SELECT pg_create_physical_replication_slot(%s, true)", source.QuoteText(n))))
			return
		case p.physical[i].Lost:
			c.fail(name, fmt.Sprintf("names %s, and the server has given that slot up: nothing is delivered", n), "set up its standby again, with a new slot of that name; or take it out of synchronized_standby_slots")
			return
		case !p.physical[i].Active:
			c.warn(name, fmt.Sprintf("names %s, and that standby is not connected: delivery waits for it", n), "start the standby, or take it out of synchronized_standby_slots")
			return
		}
	}
	if len(unnamed) > 0 {
		c.warn(name, fmt.Sprintf("does not name %s: if that is the slot of a standby, the relay stops with exit 3 after its promotion", strings.Join(unnamed, ", ")), setStandbys(all))
		return
	}
	c.add(name, strings.Join(p.named, ", "), nil)
}

func setStandbys(names []string) string {
	return inPsql(onPrimary, "ALTER SYSTEM SET synchronized_standby_slots = "+source.QuoteText(strings.Join(names, ", ")), reloadConf)
}

const (
	onPrimary  = "the primary"
	reloadConf = "SELECT pg_reload_conf()"
)

// inPsql is statements to paste into psql, at the end of a fix. `psql -c` would run several of them
// in one transaction, where ALTER SYSTEM is refused.
func inPsql(on string, statements ...string) string {
	return "in psql on " + on + ": " + strings.Join(statements, "; ") + ";"
}

// missesOf adds what is missing for a promotion: an error if failover slots were asked for.
func (c *checker) missesOf(name, detail, fix string) {
	if c.c.FailoverSlot == source.FailoverOn {
		c.fail(name, detail, fix)
		return
	}
	c.warn(name, detail, fix)
}
