// Tests of what a promotion needs: a failover slot, standbys that have it, and a primary that waits
// for them.

package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/replication/slot"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// checkStandbys tests whether a relay would go on by itself after a promotion. Where nothing shows
// that there is a standby it adds no finding.
func (c *checker) checkStandbys(ctx context.Context) {
	const name = "failover slot"
	if err := source.CheckFailoverSlot(ctx, c.pool, c.cfg); err != nil {
		c.addResult(name, "", err)
		return
	}
	p, err := c.readPrimary(ctx)
	if c.warnUnchecked(name, err) || !p.has || c.cfg.FailoverSlot == source.FailoverOff && !p.failover {
		return
	}
	several := source.SeveralHosts(c.cfg)
	switch {
	case p.there && !p.failover && c.cfg.FailoverSlot == source.FailoverOn:
		c.addWarning(name, c.cfg.Slot+" is not a failover slot yet; the next start makes it one", "restart the relay")
	case p.there && !p.failover && several:
		c.addWarning(name, c.cfg.Slot+" is not a failover slot: a standby that is promoted does not have it, and the relay stops there with exit 3", "source.failover_slot: on")
		return
	case !several && len(p.physical) == 0 && len(p.named) == 0:
		if p.failover {
			c.addResult(name, c.cfg.Slot+"; no standby has a slot on this server, and source.url has one host", nil)
		}
		return
	default:
		c.addResult(name, c.cfg.Slot, nil)
	}
	c.checkNamedStandbys(p)
	c.askStandbys(ctx, p)
}

// askStandbys asks the other hosts of source.url.
func (c *checker) askStandbys(ctx context.Context, p primaryState) {
	others, err := source.ReadHosts(ctx, c.pool, c.cfg)
	if c.warnUnchecked("standby", err) {
		return
	}
	for i := range others {
		c.checkStandby(&others[i], p)
	}
}

// checkStandby adds the finding about another host: the first thing that keeps it from taking over.
func (c *checker) checkStandby(h *source.Host, p primaryState) {
	name := "standby " + h.Addr
	clash := h.Err == nil && h.Slot != nil && !h.Slot.Synced
	switch {
	case h.Err != nil:
		c.addWarning(name, "cannot be checked: "+h.Err.Error(), "start it, let the relay's role log in there, or take it out of source.url")
	case !h.Standby:
		c.addPromotionLack(name, "is no standby: it can be written to, and may be an old primary", "make it a standby, or stop it, or take it out of source.url")
	case clash, len(h.LeftOver) > 0:
		left := h.LeftOver
		if clash && !slices.Contains(left, c.cfg.Slot) {
			left = append([]string{c.cfg.Slot}, left...)
		}
		var drops []string
		for _, l := range left {
			drops = append(drops, fmt.Sprintf("SELECT pg_drop_replication_slot(%s)", source.QuoteText(l)))
		}
		c.addPromotionLack(name, fmt.Sprintf("has the slot %s from a time when it was the primary, not synced from this one: no slot is synced to it any more", strings.Join(left, ", ")),
			inPsql(h.Addr, drops...))
	case !h.Syncs:
		c.addPromotionLack(name, "does not sync slots", inPsql(h.Addr, "ALTER SYSTEM SET sync_replication_slots = on", reloadConf))
	case !h.Feedback:
		c.addPromotionLack(name, "does not sync slots: hot_standby_feedback is off", inPsql(h.Addr, "ALTER SYSTEM SET hot_standby_feedback = on", reloadConf))
	case h.SlotName == "":
		c.addPromotionLack(name, "does not sync slots: primary_slot_name is not set",
			inPsql(onPrimary, "SELECT pg_create_physical_replication_slot('standby_1', true)")+" Then "+inPsql(h.Addr, "ALTER SYSTEM SET primary_slot_name = 'standby_1'", reloadConf))
	case h.Conninfo != nil && !h.NamesDatabase():
		c.addPromotionLack(name, "does not sync slots: primary_conninfo has no dbname", fmt.Sprintf("add dbname=%s to primary_conninfo there, then %s", c.database, inPsql(h.Addr, reloadConf)))
	case !slices.Contains(p.named, h.SlotName):
		c.addPromotionLack(name, fmt.Sprintf("has primary_slot_name %s, which synchronized_standby_slots of the primary does not name: the relay stops with exit 3 after its promotion", h.SlotName),
			setStandbys(append(slices.Clone(p.named), h.SlotName)))
	default:
		c.addSynced(name, h, p)
	}
}

// addSynced adds the finding about the slot on a standby whose settings are right.
func (c *checker) addSynced(name string, h *source.Host, p primaryState) {
	unread := ""
	if h.Conninfo == nil {
		unread = "; primary_conninfo cannot be read with this role, it needs a dbname"
	}
	switch {
	case !p.there:
		c.addResult(name, "syncs slots"+unread, nil)
	case h.Slot == nil:
		c.addWarning(name, "does not have the slot yet"+unread, "it is synced within a minute; else the log of the standby says why not")
	case h.Slot.Invalidated():
		c.addWarning(name, "has given the slot up ("+strings.TrimSpace(h.Slot.WALStatus+" "+h.Slot.Invalidation)+")", "it is synced again by itself; else the log of the standby says why not")
	case h.Slot.Temporary:
		c.addWarning(name, "has the slot, which is not ready for a promotion yet: the relay has to pass a position that the standby has kept",
			"it becomes ready while events are delivered; if nothing is, "+inPsql(onPrimary, "SELECT pg_log_standby_snapshot()"))
	case unread != "":
		c.addResult(name, "has the slot, synced"+unread, nil)
	default:
		c.addResult(name, "has the slot, synced", nil)
	}
}

// primaryState has the settings of the server from which the relay reads.
type primaryState struct {
	has      bool               // it has failover slots: PostgreSQL 17 and later
	there    bool               // our slot exists
	failover bool               // our slot is a failover slot
	named    []string           // slots that synchronized_standby_slots names
	physical []slot.StandbySlot // physical slots that are not temporary
}

func (c *checker) readPrimary(ctx context.Context) (p primaryState, err error) {
	view, err := slot.ReadView(ctx, c.pool, c.cfg.Slot)
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

// checkNamedStandbys tests which standbys the primary waits for before it sends something to the
// relay. One that it does not wait for may be behind the relay when it is promoted.
func (c *checker) checkNamedStandbys(p primaryState) {
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
		c.addPromotionLack(name, "is empty, and no standby has a slot: the relay may have sent what a standby does not have, and stops with exit 3 after its promotion",
			"name a slot for each standby, with primary_slot_name = 'standby_1' there, and "+inPsql(onPrimary, "SELECT pg_create_physical_replication_slot('standby_1', true)",
				"ALTER SYSTEM SET synchronized_standby_slots = 'standby_1'", reloadConf))
		return
	case len(p.named) == 0:
		c.addPromotionLack(name, "is empty: the relay may have sent what a standby does not have, and stops with exit 3 after its promotion",
			"leave out slots that belong to no standby, and "+setStandbys(all))
		return
	}
	for _, n := range p.named {
		i := slices.IndexFunc(p.physical, func(s slot.StandbySlot) bool { return s.Name == n })
		switch {
		case i < 0:
			c.addFailure(name, fmt.Sprintf("names %s, and there is no such physical slot: nothing is delivered", n),
				"take it out of synchronized_standby_slots; or, if its standby comes back, "+inPsql(onPrimary, fmt.Sprintf("SELECT pg_create_physical_replication_slot(%s, true)", source.QuoteText(n))))
			return
		case p.physical[i].Lost:
			c.addFailure(name, fmt.Sprintf("names %s, and the server has given that slot up: nothing is delivered", n), "set up its standby again, with a new slot of that name; or take it out of synchronized_standby_slots")
			return
		case !p.physical[i].Active:
			c.addWarning(name, fmt.Sprintf("names %s, and that standby is not connected: delivery waits for it", n), "start the standby, or take it out of synchronized_standby_slots")
			return
		}
	}
	if len(unnamed) > 0 {
		c.addWarning(name, fmt.Sprintf("does not name %s: if that is the slot of a standby, the relay stops with exit 3 after its promotion", strings.Join(unnamed, ", ")), setStandbys(all))
		return
	}
	c.addResult(name, strings.Join(p.named, ", "), nil)
}

// setStandbys is the fix that sets synchronized_standby_slots to these names.
func setStandbys(names []string) string {
	return inPsql(onPrimary, "ALTER SYSTEM SET synchronized_standby_slots = "+source.QuoteText(strings.Join(names, ", ")), reloadConf)
}

const (
	onPrimary  = "the primary"
	reloadConf = "SELECT pg_reload_conf()"
)

// inPsql is a fix of statements to paste into psql on a server. `psql -c` would run several of them
// in one transaction, where ALTER SYSTEM is refused.
func inPsql(on string, statements ...string) string {
	return "in psql on " + on + ": " + strings.Join(statements, "; ") + ";"
}

// addPromotionLack adds a finding that a promotion lacks something: failed if failover slots were
// asked for, else a warning.
func (c *checker) addPromotionLack(name, detail, fix string) {
	if c.cfg.FailoverSlot == source.FailoverOn {
		c.addFailure(name, detail, fix)
		return
	}
	c.addWarning(name, detail, fix)
}
