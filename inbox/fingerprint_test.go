package inbox

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"
)

// The event is the same one whether the relay sends it as a CloudEvent or not, in both modes, and
// when its row is sent again. Another payload, header or extension is another event in each form. A
// CloudEvent that a service has as its payload stands as it is. The consumer in Python has the same
// hashes, by the same file.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/content_hash.json")
	if err != nil {
		t.Fatal(err)
	}
	var events []struct {
		Event, Hash string
		Forms       []struct {
			ContentType string `json:"content_type"`
			Headers     map[string]string
			Body        string
		}
	}
	if err := json.Unmarshal(text, &events); err != nil {
		t.Fatal(err)
	}
	eventOf := map[string]string{}
	for _, event := range events {
		if other, found := eventOf[event.Hash]; found {
			t.Errorf("%s is taken for %s", event.Event, other)
		}
		eventOf[event.Hash] = event.Event
		for i, form := range event.Forms {
			m := Message{ID: "1", Aggregate: "order", Key: "42", Type: "created", Payload: []byte(form.Body), ContentType: form.ContentType, Headers: form.Headers}
			if got := hex.EncodeToString(fingerprint(m)); got != event.Hash {
				t.Errorf("%s, form %d: the hash is %s, want %s", event.Event, i, got, event.Hash)
			}
		}
	}
	bytes := Message{ID: "1", Payload: []byte("\x00\xff")}
	wrapped := Message{ID: "1", ContentType: "application/cloudevents+json", Payload: []byte(`{"id":"1","data_base64":"AP8="}`)}
	if string(fingerprint(bytes)) != string(fingerprint(wrapped)) {
		t.Error("bytes and their CloudEvent are taken for two events")
	}
}
