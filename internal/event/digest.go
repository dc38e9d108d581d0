// The digest of a value: the retry table indexes it where the value may be too long for an index.

package event

import "hash/fnv"

// Digest is the 64-bit FNV-1a hash of b. The retry table indexes it where the value itself may be
// too long for an index entry, so it must be the same in every version. Values with the same digest
// are compared in full. nil has no digest: it is NULL.
func Digest(b []byte) *int64 {
	if b == nil {
		return nil
	}
	h := fnv.New64a()
	h.Write(b) // a hash does not fail
	d := int64(h.Sum64())
	return &d
}
