package replication

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cdc-relay/cdc-relay/internal/decode"
)

// knownTables are the OIDs by which a session's decoder knows our rows. The decoder begins with what is remembered, and
// finds others by name in the stream. One that the catalogue has and no row has shown yet it would not know after a rename,
// so the session ends and the next one begins with it.
type knownTables struct {
	mu   sync.Mutex
	oids map[uint32]bool
}

var errTableNotKnown = errors.New("this session began before the table had its name")

func knowing(tables []decode.Table) *knownTables {
	k := &knownTables{oids: map[uint32]bool{}}
	for _, t := range tables {
		k.add(t.OID)
		for _, oid := range t.Also {
			k.add(oid)
		}
	}
	return k
}

func (k *knownTables) add(oid uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.oids[oid] = true
}

// all is an error that names the first table with an OID that is not known.
func (k *knownTables) all(tables []decode.Table) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range tables {
		for _, oid := range slices.Concat(t.Also, []uint32{t.OID}) {
			if !k.oids[oid] {
				return fmt.Errorf("table %s, OID %d: %w", t, oid, errTableNotKnown)
			}
		}
	}
	return nil
}
