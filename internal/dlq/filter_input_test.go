package dlq

import (
	"bytes"
	"encoding/json"
	"testing"
)

// An empty key is a key: taken for none, a purge of its rows would be one of all rows. It stays
// what it is in the filter of a job, which is stored as JSON; so do bytes that are no UTF-8.
func TestEmptyKeyIsOne(t *testing.T) {
	for _, value := range []string{"", "a", "\xff\x00"} {
		var in FilterInput
		if known, err := in.Set("key", value); !known || err != nil {
			t.Fatal(known, err)
		}
		f, err := in.Filter(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		stored, err := json.Marshal(&f)
		if err != nil {
			t.Fatal(err)
		}
		var read Filter
		if err := json.Unmarshal(stored, &read); err != nil {
			t.Fatal(err)
		}
		for _, key := range [][]byte{f.Key, read.Key} {
			if key == nil || !bytes.Equal(key, []byte(value)) {
				t.Errorf("the key %q is %#v", value, key)
			}
		}
		if read.ID != nil || read.Aggregate != nil || read.Type != nil || read.Destination != nil {
			t.Errorf("what was not given is %+v", read)
		}
	}
}
