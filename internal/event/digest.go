package event

import "hash/fnv"

// Digest is the 64-bit FNV-1a of b, as the tables of the retry table index what may be longer than
// an index entry: the same in every version. Values that share one are told apart by themselves.
// nil has none: it is NULL.
func Digest(b []byte) *int64 {
	if b == nil {
		return nil
	}
	h := fnv.New64a()
	h.Write(b) // a hash does not fail
	d := int64(h.Sum64())
	return &d
}
