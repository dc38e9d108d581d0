//go:build testall

package replication

import "testing"

func TestSlotOfDebeziumWithOtherPublications(t *testing.T) {
	slotOfDebezium(t, map[string]string{
		"all_tables, by partition root":  `FOR ALL TABLES WITH (publish_via_partition_root = true)`,
		"operations named":               `FOR TABLE outbox, orders WITH (publish = 'insert, update, delete, truncate')`,
		"without truncate, as by itself": `FOR ALL TABLES WITH (publish = 'insert, update, delete')`,
	})
}
