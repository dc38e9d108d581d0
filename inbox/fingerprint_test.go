package inbox

import (
	"bytes"
	"maps"
	"testing"
)

// The event is the same one whether the relay sends it as a CloudEvent or not, in both modes, and
// when its row is sent again. Another payload is another event in each form.
func TestFingerprintOfCloudEvents(t *testing.T) {
	t.Parallel()
	const envelope = `{"specversion":"1.0","id":"1","source":"/shop","type":"created","time":"2026-11-30T11:14:15Z",`
	const again = `{"specversion":"1.0","id":"1","source":"/shop","type":"created","time":"2026-12-01T00:00:00Z","sequence":"0",`
	headers := map[string]string{"tenant": "a", "cdc_position": "1", "traceparent": "x"}
	with := func(more map[string]string) map[string]string {
		all := maps.Clone(headers)
		maps.Copy(all, more)
		return all
	}
	for _, c := range []struct{ plain, structured, repeated, other string }{
		{`{"a": 1}`, `"datacontenttype":"application/json","data":{"a": 1}}`, `"data":{"a": 1},"datacontenttype":"application/json"}`, `"data":{"a":1},"datacontenttype":"application/json"}`},
		{`"text"`, `"datacontenttype":"application/vnd.x+JSON; v=1","data":"text"}`, `"datacontenttype":"text/json","data":"text"}`, `"datacontenttype":"text/plain","data":"text"}`},
		{"a \"text\"\n", `"datacontenttype":"text/plain","data":"a \"text\"\u000a"}`, `"datacontenttype":"text/plain","data":"a \"text\"\n"}`, `"datacontenttype":"text/plain","data":"a"}`},
		{"\x00\x00\xff", `"datacontenttype":"application/octet-stream","data_base64":"AAD/"}`, `"data_base64":"AAD/"}`, `"data_base64":"AAD+"}`},
		{"", `"datacontenttype":"application/json"}`, `"data_base64":""}`, `"data":1}`},
	} {
		message := func(payload string, headers map[string]string) []byte {
			return fingerprint(Message{ID: "1", Aggregate: "order", Key: "42", Type: "created", Payload: []byte(payload), Headers: headers})
		}
		plain := message(c.plain, headers)
		for name, same := range map[string][]byte{
			"binary on Kafka":    message(c.plain, with(map[string]string{"ce_id": "1", "ce_sequence": "7", "content-type": "application/json"})),
			"binary on RabbitMQ": message(c.plain, with(map[string]string{"cloudEvents:id": "1", "cloudEvents:time": "7"})),
			"structured":         message(envelope+c.structured, with(map[string]string{"content-type": "application/cloudevents+json"})),
			"sent again":         message(again+c.repeated, headers),
		} {
			if !bytes.Equal(same, plain) {
				t.Errorf("%q, %s: it is taken for another event", c.plain, name)
			}
		}
		for name, other := range map[string][]byte{
			"another payload": message(envelope+c.other, headers),
			"another id":      message(`{"specversion":"1.0","id":"2",`+c.structured, headers),
			"no whole object": message(envelope+c.structured+"]", headers),
			"another header":  message(envelope+c.structured, with(map[string]string{"tenant": "b"})),
		} {
			if bytes.Equal(other, plain) {
				t.Errorf("%q, %s: it is taken for the same event", c.plain, name)
			}
		}
	}
}
