// init --add-transaction-column: the SQL of the column by which the relay knows which rows were
// sent, for tables that exist.

package setup

import (
	"fmt"
	"io"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/decode"
	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/replication/source"
	"github.com/cdc-relay/cdc-relay/internal/sent"
)

// transactionColumn is the column that a table has, or is to have; its Name is "": none is mapped.
func transactionColumn(t decode.Table) sent.Column {
	c := sent.Column{Schema: t.Schema, Table: t.Name}
	if names := t.Mapping.Transaction.Any; len(names) > 0 {
		c.Name = names[0]
	}
	return c
}

const transactionHeader = `-- Adds the column by which the relay knows which rows were delivered, with its trigger and its index.
-- Run this as the owner of the tables and outside of a transaction, which the index does not allow: psql -v ON_ERROR_STOP=1.
-- Leave out what a table has. It should stop at a column that exists: it may be your application's.
-- A subscription to another publication of a table stops with "missing replicated column" until its table has the column,
-- too. So add it there first: of type xid8, without a default.
SET search_path = pg_catalog;
`

const transactionLocks = `
-- %s: column and trigger. A lock that is not free is given up, so that writers go first: then run the statement again.
-- Rows that exist stay NULL. With the default at once they would all get the transaction of this statement.
SET lock_timeout = '200ms';
`

const transactionIndex = `-- The index keeps no writer waiting, and waits itself for transactions that are open. If it is interrupted, drop what it
-- leaves, which is not valid. If the table is partitioned, make one on each partition, and then one without CONCURRENTLY on
-- the table: it takes them, and gives one to partitions to come.
RESET lock_timeout;
`

// PrintTransactionColumn writes the SQL that adds the column to each configured table. It does not
// connect, so it does not know what of it is there.
func PrintTransactionColumn(w io.Writer, c source.Config) error {
	var b strings.Builder
	b.WriteString(transactionHeader)
	for _, t := range c.Tables {
		column := transactionColumn(t)
		if column.Name == "" {
			return &event.Stop{
				Code: event.ExitUsage, Reason: "config",
				What: "outbox.transaction is empty: there is no column to add", Fix: "name it, or take the key out of the configuration: the default is tx",
			}
		}
		fmt.Fprintf(&b, transactionLocks, t)
		for _, sql := range append([]string{column.AddSQL()}, column.TriggerSQL()...) {
			b.WriteString(sql + ";\n")
		}
		b.WriteString(transactionIndex + column.IndexSQL("CONCURRENTLY ON") + ";\n")
	}
	b.WriteString("\nRESET search_path;\n")
	_, err := io.WriteString(w, b.String())
	return err
}
