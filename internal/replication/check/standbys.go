// Tests of what a promotion needs: a failover slot, and standbys that have it. Whether the primary
// waits for them is in waits_for.go.

package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// standbys says whether a relay would go on by itself after a promotion. Where nothing speaks of a
// standby it says nothing.
func (c *checker) standbys(ctx context.Context) {
	const name = "failover slot"
	if err := source.CheckFailoverSlot(ctx, c.pool, c.c); err != nil {
		c.add(name, "", err)
		return
	}
	p, err := c.primary(ctx)
	if c.warnUnchecked(name, err) || !p.has || c.c.FailoverSlot == source.FailoverOff && !p.failover {
		return
	}
	several := source.SeveralHosts(c.c)
	switch {
	case p.there && !p.failover && c.c.FailoverSlot == source.FailoverOn:
		c.warn(name, c.c.Slot+" is not a failover slot yet; the next start makes it one", "restart the relay")
	case p.there && !p.failover && several:
		c.warn(name, c.c.Slot+" is not a failover slot: a standby that is promoted does not have it, and the relay stops there with exit 3", "source.failover_slot: on")
		return
	case !several && len(p.physical) == 0 && len(p.named) == 0:
		if p.failover {
			c.add(name, c.c.Slot+"; no standby has a slot on this server, and source.url has one host", nil)
		}
		return
	default:
		c.add(name, c.c.Slot, nil)
	}
	c.waitsFor(p)
	c.askStandbys(ctx, p)
}

// askStandbys asks the other hosts of source.url.
func (c *checker) askStandbys(ctx context.Context, p primary) {
	others, err := source.ReadHosts(ctx, c.pool, c.c)
	if c.warnUnchecked("standby", err) {
		return
	}
	for i := range others {
		c.standby(&others[i], p)
	}
}

// standby adds the finding about one of them: the first thing that keeps it from taking over.
func (c *checker) standby(h *source.Host, p primary) {
	name := "standby " + h.Addr
	clash := h.Err == nil && h.Slot != nil && !h.Slot.Synced
	switch {
	case h.Err != nil:
		c.warn(name, "cannot be checked: "+h.Err.Error(), "start it, let the relay's role log in there, or take it out of source.url")
	case !h.Standby:
		c.missesOf(name, "is no standby: it can be written to, and may be an old primary", "make it a standby, or stop it, or take it out of source.url")
	case clash, len(h.LeftOver) > 0:
		left := h.LeftOver
		if clash && !slices.Contains(left, c.c.Slot) {
			left = append([]string{c.c.Slot}, left...)
		}
		var drops []string
		for _, l := range left {
			drops = append(drops, fmt.Sprintf("SELECT pg_drop_replication_slot(%s)", source.QuoteText(l)))
		}
		c.missesOf(name, fmt.Sprintf("has the slot %s from a time when it was the primary, not synced from this one: no slot is synced to it any more", strings.Join(left, ", ")),
			inPsql(h.Addr, drops...))
	case !h.Syncs:
		c.missesOf(name, "does not sync slots", inPsql(h.Addr, "ALTER SYSTEM SET sync_replication_slots = on", reloadConf))
	case !h.Feedback:
		c.missesOf(name, "does not sync slots: hot_standby_feedback is off", inPsql(h.Addr, "ALTER SYSTEM SET hot_standby_feedback = on", reloadConf))
	case h.SlotName == "":
		c.missesOf(name, "does not sync slots: primary_slot_name is not set",
			inPsql(onPrimary, "SELECT pg_create_physical_replication_slot('standby_1', true)")+" Then "+inPsql(h.Addr, "ALTER SYSTEM SET primary_slot_name = 'standby_1'", reloadConf))
	case h.Conninfo != nil && !h.NamesDatabase():
		c.missesOf(name, "does not sync slots: primary_conninfo has no dbname", fmt.Sprintf("add dbname=%s to primary_conninfo there, then %s", c.database, inPsql(h.Addr, reloadConf)))
	case !slices.Contains(p.named, h.SlotName):
		c.missesOf(name, fmt.Sprintf("has primary_slot_name %s, which synchronized_standby_slots of the primary does not name: the relay stops with exit 3 after its promotion", h.SlotName),
			setStandbys(append(slices.Clone(p.named), h.SlotName)))
	default:
		c.synced(name, h, p)
	}
}

// synced is about the slot on a standby whose settings are right.
func (c *checker) synced(name string, h *source.Host, p primary) {
	unread := ""
	if h.Conninfo == nil {
		unread = "; primary_conninfo cannot be read with this role, it needs a dbname"
	}
	switch {
	case !p.there:
		c.add(name, "syncs slots"+unread, nil)
	case h.Slot == nil:
		c.warn(name, "does not have the slot yet"+unread, "it is synced within a minute; else the log of the standby says why not")
	case h.Slot.Invalidated():
		c.warn(name, "has given the slot up ("+strings.TrimSpace(h.Slot.WALStatus+" "+h.Slot.Invalidation)+")", "it is synced again by itself; else the log of the standby says why not")
	case h.Slot.Temporary:
		c.warn(name, "has the slot, which is not ready for a promotion yet: the relay has to pass a position that the standby has kept",
			"it becomes ready while events are delivered; if nothing is, "+inPsql(onPrimary, "SELECT pg_log_standby_snapshot()"))
	case unread != "":
		c.add(name, "has the slot, synced"+unread, nil)
	default:
		c.add(name, "has the slot, synced", nil)
	}
}

// primary is what the server that is read says.
type primary struct {
	has             bool // failover slots: 17 and later
	there, failover bool // our slot
	named           []string
	physical        []slot.StandbySlot
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
	seen, err := slot.ReadStandbys(ctx, c.pool)
	if err != nil {
		return p, err
	}
	p.named = seen.Named
	p.physical = slices.DeleteFunc(seen.Slots, func(s slot.StandbySlot) bool { return s.Temporary })
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
		i := slices.IndexFunc(p.physical, func(s slot.StandbySlot) bool { return s.Name == n })
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
