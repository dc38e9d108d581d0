package display

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/demo/golden"
)

func startView() *View {
	return &View{
		Elapsed: 3400 * time.Millisecond, Broker: "RabbitMQ", Now: "Starting PostgreSQL, RabbitMQ and a build of cdc-relay.",
		States: map[string]string{
			OrdersName: "closed", PostgresName: "up", RelayName: "building", BrokerName: "starting", ConsumerName: "waits",
		},
	}
}

func outageView() *View {
	v := &View{
		Elapsed: 83 * time.Second, Phase: Outage, Broker: "RabbitMQ", Now: "RabbitMQ is down: orders go on, events wait in PostgreSQL's WAL.",
		States: map[string]string{
			OrdersName: "writes", PostgresName: "up", RelayName: "waiting for postgres", BrokerName: "down", ConsumerName: "waits",
		},
		Sample:     Sample{Committed: 1_234_567, Delivered: 1_229_000, Duplicates: 97, Deferred: 4_321, Dead: 1, Lag: 3 << 20},
		RolledBack: 612,
		Latency:    Latency{Count: 1, P50: 1234 * time.Microsecond, P99: 12 * time.Second},
	}
	for i := range 60 {
		up := float64(min(1, max(0, 40-i)))
		v.Commits = v.Commits.Add(600)
		v.Deliveries = v.Deliveries.Add(600 * up)
		v.Waiting = v.Waiting.Add(float64(300 * max(0, i-40)))
		v.Lags = v.Lags.Add(float64(200_000 * max(0, i-40)))
		v.Deferred = v.Deferred.Add(float64(200 * max(0, i-45)))
	}
	return v
}

func TestFrame(t *testing.T) {
	quiet := outageView()
	quiet.Latency = Latency{}
	kafkas := startView()
	kafkas.Broker, kafkas.Now = "Kafka", "Starting PostgreSQL, Kafka and a build of cdc-relay."
	for name, v := range map[string]*View{"start": startView(), "outage": outageView(), "quiet": quiet, "kafka": kafkas} {
		lines := frame(v, false)
		golden.Narrow(t, lines)
		golden.Compare(t, "frame-"+name+".golden", golden.Text(lines))
	}
	golden.Compare(t, "frame-colours.golden", golden.Text(frame(outageView(), true)))
}

func TestPlain(t *testing.T) {
	var out strings.Builder
	p := &Plain{Out: &out}
	p.Show(startView())
	p.Say(4*time.Second, "PostgreSQL answers.")
	v := outageView()
	for range 30 { // three seconds
		p.Show(v)
		v.Elapsed += 100 * time.Millisecond
	}
	v.Latency = Latency{}
	v.Elapsed += time.Second
	p.Show(v)
	p.Close()
	golden.Compare(t, "plain.golden", out.String())
}

func TestNumbers(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{Thousands(0), "0"},
		{Thousands(999), "999"},
		{Thousands(1000), "1,000"},
		{Thousands(-1234567), "-1,234,567"},
		{Size(999), "999 B"},
		{Size(1000), "1.0 KiB"},
		{Size(5 << 30), "5.0 GiB"},
		{Short(40 * time.Microsecond), "0.0 ms"},
		{Short(9940 * time.Microsecond), "9.9 ms"},
		{Short(436 * time.Millisecond), "436 ms"},
		{Short(11800 * time.Millisecond), "11.8 s"},
		{clock(61 * time.Second), "1:01"},
		{Trail{0, 1, 500, 1000, 2000}.bars(1000), "·▁▃▅█"},
		{fmt.Sprint(len(outageView().Commits)), fmt.Sprint(trailLength)},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}
