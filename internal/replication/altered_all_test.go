//go:build testall

package replication

import "testing"

func TestPublicationThatWasNotAltered(t *testing.T) {
	b := shared(t)
	b.exec(`CREATE TABLE second (t text)`)
	r := b.settledRun("a")
	for _, sql := range []string{
		`ALTER PUBLICATION p ADD TABLE second`, `ALTER PUBLICATION p DROP TABLE second`, `COMMENT ON PUBLICATION p IS 'ours'`,
		`VACUUM (FREEZE) pg_publication`, `VACUUM (FULL, FREEZE) pg_publication`,
	} {
		b.exec(sql)
	}
	r.waitChecked()
	r.endClean()
	b.goesOn("b")
}

func TestPublicationRenamedOrRootedThereAndBack(t *testing.T) {
	alteredThereAndBack(t, map[string][2]string{
		"name": {`ALTER PUBLICATION p RENAME TO q`, `ALTER PUBLICATION q RENAME TO p`},
		"partition root": {
			`ALTER PUBLICATION p SET (publish_via_partition_root = false)`,
			`ALTER PUBLICATION p SET (publish_via_partition_root = true)`,
		},
	})
}
