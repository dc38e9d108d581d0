// Rows of partitions that were detached or dropped while they waited in a slot that another program had used.

package replication

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// detachedUntil is up to where a slot that is taken as it is found may have such rows: 0 unless a table of ours is partitioned.
//
// Without publish_via_partition_root, which Debezium does not set, a row comes under the name of its partition. Those that are
// partitions now are remembered with the slot (withPartitions); of one that was detached or dropped before, neither the stream nor the
// catalogue knows whose it was. So a table that comes with the columns of ours, and is not known, is stopped at, not passed over. Only
// before the position that is returned: it is read after the publication was seen to send under the root's name, and after the partitions,
// those that are being detached among them. A partition that is none any more then has waited for the transactions that had written to it,
// so whatever commits later comes from the root or from a partition that is remembered.
func detachedUntil(ctx context.Context, q querier, sent sends) (until pglogrepl.LSN, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var oids []uint32
	for _, t := range sent.Tables {
		oids = append(oids, t.OID)
	}
	err = q.QueryRow(ctx, `SELECT CASE WHEN EXISTS (SELECT FROM pg_class WHERE oid = ANY ($1::oid[]) AND relkind = 'p')
		THEN pg_current_wal_insert_lsn() ELSE '0/0' END`, oids).Scan(&until)
	if err != nil {
		return 0, fmt.Errorf("read pg_class: %w", err)
	}
	return until, nil
}

// stray stops at a table that may have been a partition of one of these. Whichever mend is taken, the row comes again.
func (r *reading) stray(like []*decode.Table, name string, oid uint32) error {
	slot := quoteText(r.cfg.Slot)
	var roots, mends []string
	for _, t := range like {
		roots = append(roots, t.String())
		mends = append(mends, fmt.Sprintf("if it was a partition of %[1]s: UPDATE cdc_relay.slots SET sends = jsonb_set(sends, ARRAY['tables', %[2]s, 'also'], coalesce(sends->'tables'->%[2]s->'also', '[]') || '%[3]d') WHERE slot = %[4]s",
			t, quoteText(quoteTable(*t)), oid, slot))
	}
	mends = append(mends, fmt.Sprintf("if it was none: UPDATE cdc_relay.slots SET sends = jsonb_set(sends, '{none}', coalesce(sends->'none', '[]') || '%d') WHERE slot = %s", oid, slot))
	return &outbox.Stop{
		Code: outbox.ExitOperator, Reason: "table",
		What: fmt.Sprintf("rows of table %s (OID %d) wait in slot %q from before a relay took it: the table has the columns of %s and is no partition now; if it was one, they are events",
			name, oid, r.cfg.Slot, strings.Join(roots, " and of ")),
		Mend: strings.Join(mends, "; "),
	}
}
