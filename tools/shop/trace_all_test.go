//go:build testall

package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

// traceOf places an order while the mailer is down, and checks its trace: from the request of a
// caller to the notification of the second attempt.
func traceOf(t *testing.T, p running) {
	t.Helper()
	const trace, caller = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	await.Must(t, p.setMailer(p.ctx, false))
	id := uuid.NewString()
	body := fmt.Sprintf(`{"id": %q, "customer": "traced", "item": "lamp"}`, id)
	req, err := http.NewRequestWithContext(p.ctx, http.MethodPost, p.orders.url()+"/orders", strings.NewReader(body))
	await.Must(t, err)
	req.Header.Set("traceparent", "00-"+trace+"-"+caller+"-01")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	await.Must(t, err)
	await.Must(t, resp.Body.Close())

	span := func(service, name, outcome string) servers.Span {
		t.Helper()
		found, err := p.spans.WaitSpan(p.ctx, func(s servers.Span) bool {
			return s.Trace == trace && s.Resource["service.name"] == service && s.Name == name && s.Attributes["consumer.outcome"] == outcome
		})
		await.Must(t, err)
		return found
	}
	request := span("order-service", "POST /orders", "")
	publish := span("cdc-relay", "outbox.publish", "")
	first := span(notificationService, "process "+p.broker.destination(), "retry")
	await.Must(t, p.setMailer(p.ctx, true))
	second := span(notificationService, "process "+p.broker.destination(), "success")
	for _, tc := range []struct {
		of           servers.Span
		parent       string
		retries, err string
	}{{request, caller, "", ""}, {publish, request.ID, "", ""}, {first, publish.ID, "0", "the mailer is down: transient"}, {second, publish.ID, "1", ""}} {
		if tc.of.Parent != tc.parent || tc.of.Attributes[p.broker.system()+".retry_count"] != tc.retries || tc.of.Error != tc.err {
			t.Errorf("the parent of %s is %s, want %s: %s", tc.of.Name, tc.of.Parent, tc.parent, tc.of.Text)
		}
	}
	if request.Attributes["http.response.status_code"] != "201" || publish.Attributes["outbox.outcome"] != "published" {
		t.Errorf("spans are %s, %s", request.Text, publish.Text)
	}
	// The notification is committed before its span ends.
	var attempt int
	await.Must(t, p.notificationsDB.QueryRow(p.ctx, "SELECT attempt FROM notifications WHERE order_id = $1", id).Scan(&attempt))
	if attempt != 2 {
		t.Errorf("attempt %d was notified, want 2", attempt)
	}
	for _, s := range p.spans.Spans() {
		if s.Trace == trace {
			t.Logf("%s of %s: from %s to %s, parent %s, %v", s.Name, s.Resource["service.name"], s.Start.Sub(request.Start).Round(time.Microsecond), s.End.Sub(request.Start).Round(time.Microsecond), s.Parent, s.Attributes)
		}
	}
}
