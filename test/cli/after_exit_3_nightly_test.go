//go:build nightly

package cli

import "maps"

func init() {
	maps.Copy(playedRows, map[string]played{
		"slot half made":      {spoil: `UPDATE cdc_relay.slots SET state = 'creating'`},
		"slot created again":  {spoil: `SELECT pg_drop_replication_slot('SLOT'); INSERT INTO outbox` + waitingRow + `; SELECT pg_create_logical_replication_slot('SLOT', 'pgoutput')`},
		"another system":      {spoil: `UPDATE cdc_relay.slots SET system_id = '42'`},
		"publication altered": {spoil: `ALTER PUBLICATION "SLOT" SET (publish = ''); ALTER PUBLICATION "SLOT" SET (publish = 'insert')`},
		"rows of a partition": {
			foreign: true, before: partitionedOutbox + "; " + slotByHand, earlier: 1, then: sent("waits"),
			spoil: `INSERT INTO outbox` + waitingRow + `; ALTER PUBLICATION "SLOT" SET (publish_via_partition_root = true)`,
		},
		"prefix left out": {
			was: "  message_prefix: outbox", change: func(r *rig) { r.source = "" },
			spoil: `SELECT pg_logical_emit_message(true, 'outbox', '{}')`,
		},
		"slot missing on another system":   {spoil: `UPDATE cdc_relay.slots SET system_id = '42'; SELECT pg_drop_replication_slot('SLOT')`},
		"another publication":              {before: `CREATE PUBLICATION second FOR TABLE outbox`, change: func(r *rig) { r.reads = "second" }},
		"another timeline":                 {spoil: `UPDATE cdc_relay.slots SET timeline = timeline + 1`},
		"publication dropped":              {spoil: `DROP PUBLICATION "SLOT"`},
		"publication created again":        {spoil: `DROP PUBLICATION "SLOT"; CREATE PUBLICATION "SLOT" FOR TABLE outbox`},
		"no inserts":                       {spoil: `ALTER PUBLICATION "SLOT" SET (publish = 'update')`},
		"partitions under their own names": {before: partitionedOutbox, spoil: `ALTER PUBLICATION "SLOT" SET (publish_via_partition_root = false)`},
		"table taken out":                  {spoil: `ALTER PUBLICATION "SLOT" DROP TABLE outbox`},
		"row filter":                       {spoil: `ALTER PUBLICATION "SLOT" SET TABLE outbox WHERE (type <> 'secret')`},
		"column list":                      {spoil: `ALTER PUBLICATION "SLOT" SET TABLE outbox (id, aggregatetype, aggregateid, type)`},
		"table put back":                   {spoil: `ALTER PUBLICATION "SLOT" DROP TABLE outbox; ALTER PUBLICATION "SLOT" ADD TABLE outbox`},
		"table created again":              {spoil: remadeOutbox},
		"another table of its name":        {spoil: `ALTER TABLE outbox RENAME TO away; CREATE TABLE outbox (LIKE away INCLUDING ALL)`},
		"inherited":                        {spoil: `CREATE TABLE heir () INHERITS (outbox)`, fix: `ALTER TABLE heir NO INHERIT outbox`},
		"partition not logged":             {before: partitionedOutbox, spoil: `ALTER TABLE outbox_1 SET UNLOGGED`, fix: `ALTER TABLE outbox_1 SET LOGGED`},
		"former partitions": {
			foreign: true, earlier: 1,
			before: partitionedOutbox + `; CREATE PUBLICATION "SLOT" FOR ALL TABLES; SELECT pg_create_logical_replication_slot('SLOT', 'pgoutput')`,
			spoil:  `ALTER PUBLICATION "SLOT" SET (publish_via_partition_root = true)`,
		},
		"table replaced": {before: ofAllTables, spoil: remadeOutbox},
		"table left out": {
			before: otherTable, was: "  tables: [public.outbox, public.other]", change: func(r *rig) { r.source = "" },
			spoil: `INSERT INTO other` + waitingRow, then: unsent("waits"),
		},
		"table listed for a while": {
			before: otherTable, then: unsent("waits"),
			spoil: `ALTER PUBLICATION "SLOT" ADD TABLE other; INSERT INTO other` + waitingRow + `; ALTER PUBLICATION "SLOT" DROP TABLE other`,
		},
	})
}
