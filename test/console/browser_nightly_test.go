//go:build nightly

// Package console looks at the relay's console as its users do: in a real Chromium, with a real
// relay, PostgreSQL and RabbitMQ behind it.
package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Beside(m.Run)) }

// chromium is one browser for a test, in which each tab is a reader of its own.
func chromium(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v: scripts/deps.sh browser installs it", err)
	}
	// it reaches nothing but the relay
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1280, 900),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"))
	all, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	browser, closed := chromedp.NewContext(all, quiet)
	t.Cleanup(func() { closed(); cancel() })
	await.Must(t, chromedp.Run(browser))
	return browser
}

// quiet leaves out what chromedp says of events that are newer than it is: a test fails by itself.
var quiet = chromedp.WithErrorf(func(string, ...any) {})

// tab is a page of the console that somebody looks at. The test fails if the page says an error in
// the browser's console, asks another host, or opens a dialog of a script.
type tab struct {
	t    *testing.T
	ctx  context.Context
	host string

	mu      sync.Mutex
	faults  []string
	allowed []string // parts of errors that the test brings about
	asked   int      // requests
}

// look opens the console of a relay.
func look(browser context.Context, t *testing.T, admin string) *tab {
	t.Helper()
	at, err := url.Parse(admin)
	await.Must(t, err)
	ctx, cancel := chromedp.NewContext(browser)
	p := &tab{t: t, ctx: ctx, host: at.Host}
	chromedp.ListenTarget(ctx, p.hear)
	t.Cleanup(func() {
		p.check()
		cancel()
	})
	p.run(network.Enable(), cdplog.Enable(), page.Enable(), chromedp.Navigate(admin+"/"))
	p.until(`document.querySelector('main h1')`)
	return p
}

// hear notes what must not happen.
func (p *tab) hear(event any) {
	fault := ""
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		p.mu.Lock()
		p.asked++
		p.mu.Unlock()
		// Chromium draws the icon of a field for times of a data: address; the page may not
		if u, err := url.Parse(e.Request.URL); err != nil || u.Host != p.host && u.Scheme != "data" {
			fault = "asks " + e.Request.URL
		}
	case *runtime.EventExceptionThrown:
		fault = e.ExceptionDetails.Error()
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
			fault = fmt.Sprint("console: ", e.Args[0])
		}
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.LevelError {
			fault = e.Entry.Text + " " + e.Entry.URL
		}
	case *page.EventJavascriptDialogOpening:
		fault = "a dialog: " + e.Message
		go func() { _ = chromedp.Run(p.ctx, page.HandleJavaScriptDialog(true)) }()
	}
	if fault != "" {
		p.mu.Lock()
		p.faults = append(p.faults, fault)
		p.mu.Unlock()
	}
}

// requests is how many the page has sent.
func (p *tab) requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// allow names errors that the test brings about: the browser's console has each failed request.
func (p *tab) allow(parts ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allowed = append(p.allowed, parts...)
}

func (p *tab) check() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked < 8 {
		p.t.Errorf("%d requests were seen", p.asked)
	}
next:
	for _, fault := range p.faults {
		for _, part := range p.allowed {
			if strings.Contains(fault, part) {
				continue next
			}
		}
		p.t.Errorf("the browser: %s", fault)
	}
}

func (p *tab) run(actions ...chromedp.Action) {
	p.t.Helper()
	if err := chromedp.Run(p.ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// value is what an expression of JavaScript gives.
func value[T any](p *tab, js string) (out T) {
	p.t.Helper()
	p.run(chromedp.Evaluate(js, &out, func(e *runtime.EvaluateParams) *runtime.EvaluateParams { return e.WithAwaitPromise(true) }))
	return out
}

// until waits until an expression is true.
func (p *tab) until(js string) {
	p.t.Helper()
	await.Until(p.t, js, func() bool { return value[bool](p, "Promise.resolve("+js+").then(Boolean)") }, func() any { return p.text() })
}

func (p *tab) text() string { return value[string](p, `document.body.innerText`) }

// step is a part of a test, named where it fails.
func (p *tab) step(name string, do func()) {
	p.t.Helper()
	p.t.Log(name)
	do()
}

// says waits for a text on the page.
func (p *tab) says(parts ...string) {
	p.t.Helper()
	for _, part := range parts {
		p.until(`document.body.innerText.includes(` + quote(part) + `)`)
	}
}

func quote(text string) string {
	out, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(out)
}

// named is the element that a reader would call so: a button, a link, or a field by its label.
func named(name string) string {
	return `[...document.querySelectorAll('dialog[open] button, dialog[open] input, dialog[open] select')].concat([...document.querySelectorAll('button, a, input, select')])` +
		`.find((e) => (e.closest('label')?.querySelector('span')?.textContent ?? e.textContent).trim().startsWith(` + quote(name) + `))`
}

// press clicks.
func (p *tab) press(name string) {
	p.t.Helper()
	p.until(named(name))
	p.run(chromedp.Evaluate(named(name)+`.click()`, nil))
}

// fill types into a field.
func (p *tab) fill(label, text string) {
	p.t.Helper()
	p.until(`(() => { const e = ` + named(label) + `; e?.focus(); return e && document.activeElement === e })()`)
	p.run(chromedp.KeyEvent(text))
}

// choose picks one of a list.
func (p *tab) choose(label, option string) {
	p.t.Helper()
	p.until(named(label))
	p.run(chromedp.Evaluate(`(() => { const e = `+named(label)+`; e.value = `+quote(option)+`; e.dispatchEvent(new Event('change', {bubbles: true})) })()`, nil))
}

// open gives the token.
func (p *tab) open(token string) {
	p.t.Helper()
	p.fill("Token", token+"\r")
	p.until(`document.querySelector('nav[aria-label=Screens]')`)
}

// front shows the tab: the page of one that is hidden asks for nothing.
func (p *tab) front() {
	p.t.Helper()
	p.run(page.BringToFront())
}

// screen goes to a screen by its address, and waits for what it loads.
func (p *tab) screen(hash string) {
	p.t.Helper()
	p.run(chromedp.Evaluate(`location.hash = `+quote(hash), nil))
	p.until(`!document.body.innerText.includes('Loading…') && !document.body.innerText.includes('Waiting for the relay…')`)
}

// reason fills in the dialog's reason, confirms, and waits for the outcome, which it closes.
func (p *tab) reason(why string, outcome ...string) {
	p.t.Helper()
	p.fill("Reason", why)
	p.until(`[...document.querySelectorAll('dialog[open] button[type=submit]')].some((b) => !b.disabled)`)
	p.run(chromedp.Evaluate(`document.querySelector('dialog[open] button[type=submit]').click()`, nil))
	if len(outcome) > 0 {
		p.says(outcome...)
		p.press("Close")
	}
	p.until(`!document.querySelector('dialog[open]')`)
}

// accessible looks for what axe-core finds wrong with what is shown.
func (p *tab) accessible(what string) {
	p.t.Helper()
	if !value[bool](p, `Boolean(window.axe)`) {
		p.run(chromedp.Evaluate(axe(p.t), nil))
	}
	found := value[[]string](p, `axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations.map((v) => v.id + ': ' + v.help + ' ' + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + ' ' + n.failureSummary).join(' | ')))`)
	for _, violation := range found {
		p.t.Errorf("%s: %s", what, violation)
	}
}

var axeSource = sync.OnceValues(func() (string, error) {
	path, err := exec.Command(filepath.Join(pages.Root(), "scripts/axe.sh")).Output()
	if err != nil {
		return "", fmt.Errorf("scripts/axe.sh: %w", err)
	}
	text, err := os.ReadFile(strings.TrimSpace(string(path)))
	return string(text), err
})

func axe(t *testing.T) string {
	t.Helper()
	text, err := axeSource()
	await.Must(t, err)
	return text
}

// navigateHash goes to a screen with a text in its address.
func navigateHash(screen, text string) chromedp.Action {
	return chromedp.Evaluate(`location.hash = '#/`+screen+`?' + new URLSearchParams({q: `+quote(text)+`})`, nil)
}
