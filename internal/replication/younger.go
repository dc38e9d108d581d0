// What may have hidden rows that wait in a slot which is taken as it is found: a publication, or a membership in it, that came later.

package replication

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// younger names what of the publication may have come, or been altered, after rows that wait in the slot. What has an older
// xmin than the slot's catalog_xmin has not: all transactions before that had ended where the slot begins to read. The contrary
// proves nothing: a new slot takes the catalog_xmin of the oldest one on the server, or the xid of the oldest open transaction, and
// has it until it is read. A slot that was in use, as Debezium's, has one of its own.
func (s sends) younger(ctx context.Context, q querier, slot string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	memberships := `SELECT r.oid FROM pg_publication_rel r WHERE r.oid = ANY ($3::oid[]) AND age(r.xmin) <= s.age`
	var bySchema bool
	if err := q.QueryRow(ctx, `SELECT to_regclass('pg_catalog.pg_publication_namespace') IS NOT NULL`).Scan(&bySchema); err != nil {
		return nil, fmt.Errorf("read pg_class: %w", err)
	}
	if bySchema {
		memberships += ` UNION ALL SELECT n.oid FROM pg_publication_namespace n WHERE n.oid = ANY ($3::oid[]) AND age(n.xmin) <= s.age`
	}
	var all []uint32
	for _, t := range s.Tables {
		all = append(all, t.Through...)
	}
	var own []uint32
	for _, t := range s.Tables {
		own = append(own, t.OID)
	}
	// A table that is sent through its schema or a parent, or with all tables, may have come there later than these: SET SCHEMA, ATTACH and SET LOGGED show in its own rows.
	late := `SELECT c.oid FROM pg_class c WHERE c.oid = ANY ($4::oid[])
		AND (age(c.xmin) <= s.age OR EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid AND age(i.xmin) <= s.age))
		AND NOT EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = $2 AND r.prrelid = c.oid AND age(r.xmin) > s.age)`
	var itself bool
	var young, moved []uint32
	err := q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_publication p WHERE p.oid = $2 AND age(p.xmin) <= s.age), array(`+memberships+`), array(`+late+`)
		FROM (SELECT coalesce(age(catalog_xmin), 2147483647) AS age FROM pg_replication_slots WHERE slot_name = $1) s`, slot, s.Publication, all, own).Scan(&itself, &young, &moved)
	if isNoRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read ages of the publication: %w", err)
	}
	var names []string
	if itself {
		names = append(names, "the publication itself")
	}
	for name, t := range s.Tables {
		// One membership that is old enough has sent the table all the time.
		if slices.Contains(moved, t.OID) || len(t.Through) > 0 && !slices.ContainsFunc(t.Through, func(oid uint32) bool { return !slices.Contains(young, oid) }) {
			names = append(names, "table "+name+" in it")
		}
	}
	slices.Sort(names)
	return names, nil
}

// refuseYounger keeps a slot that nobody has accepted from being taken as it is found when the publication may hide rows that wait in it:
// they are not in the stream, and nothing would ever show that they are missing. Only what is certainly older than the slot's
// position passes.
func (s sends) refuseYounger(ctx context.Context, q querier, c *Config, slot *slotView, mend string) error {
	younger, err := s.younger(ctx, q, slot.Name)
	if err != nil || len(younger) == 0 {
		return err
	}
	return publicationStop(c, fmt.Sprintf("may hide rows that wait in slot %q: %s may be younger than they are, and what was committed after %s and before that is not sent",
		c.Slot, strings.Join(younger, ", "), slot.ConfirmedFlush), mend)
}

// asFoundMend accepts a slot that no relay has used: there is no row of ours yet whose state could be set.
func asFoundMend(c *Config) string {
	return "unless the publication was as it is before the slot was made, find and re-send what was committed in between; then accept the slot as it is: " + acceptSQL(c)
}

// acceptSQL is also for a slot that is made by hand just after its publication.
func acceptSQL(c *Config) string {
	return fmt.Sprintf("INSERT INTO cdc_relay.slots (slot, system_id, timeline, publication, state, incarnation) VALUES (%s, '', 0, %s, 'adopt', 0)",
		quoteText(c.Slot), quoteText(c.Publication))
}
