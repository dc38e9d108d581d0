// Tests of what a promotion needs: a failover slot, and standbys that have it. Whether the primary
// waits for them is in waits_for.go.

package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/replication/hosts"
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
	several := hosts.Several(c.c)
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
	others, err := hosts.Read(ctx, c.pool, c.c)
	if c.warnUnchecked("standby", err) {
		return
	}
	for i := range others {
		c.standby(&others[i], p)
	}
}

// standby adds the finding about one of them: the first thing that keeps it from taking over.
func (c *checker) standby(h *hosts.Host, p primary) {
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
func (c *checker) synced(name string, h *hosts.Host, p primary) {
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
