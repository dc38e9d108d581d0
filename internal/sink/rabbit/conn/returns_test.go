package conn

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// What comes back while a call waits for its turn does not stay in memory.
func TestReturnsAreStrippedWhileACallWaits(t *testing.T) {
	c := &Channel{Returns: make(chan amqp.Return, 3)}
	turn, entered := make(chan struct{}), make(chan struct{})
	go func() {
		c.AwaitTurn(turn)
		close(entered)
	}()
	for range 3 {
		c.Returns <- amqp.Return{Exchange: "x", RoutingKey: "k", ReplyCode: 312, Body: make([]byte, keptBody+1), Headers: amqp.Table{sink.HeaderPosition: "at"}}
	}
	await.Until(t, "the returns to be taken", func() bool { return len(c.Returns) == 0 })
	<-turn
	<-entered
	if !c.heavy {
		t.Error("the channel would be used again")
	}
	c.Returns <- amqp.Return{Exchange: "y"}
	all := c.TakeReturns()
	if want := (Return{Exchange: "x", RoutingKey: "k", Position: "at", Code: 312}); len(all) != 4 || all[0] != want || all[2] != want || all[3].Exchange != "y" {
		t.Errorf("%+v", all)
	}
	if len(c.TakeReturns()) != 0 {
		t.Error("they are returned twice")
	}
	close(c.Returns) // amqp091 does, at the channel's end
	if len(c.TakeReturns()) != 0 {
		t.Error("something came back on a channel that has ended")
	}
	free := make(chan struct{}, 1)
	c.AwaitTurn(free)
}

// A channel that keeps much of a returned message is not used again.
func TestHeavyChannels(t *testing.T) {
	many := amqp.Table{}
	for i := range keptHeaders + 1 {
		many[string(rune('a'+i))] = true
	}
	for name, c := range map[string]struct {
		r    amqp.Return
		want bool
	}{
		"small":        {amqp.Return{Body: make([]byte, keptBody), Headers: amqp.Table{"a": 1}}, false},
		"large body":   {amqp.Return{Body: make([]byte, keptBody+1)}, true},
		"many headers": {amqp.Return{Headers: many}, true},
	} {
		ch := &Channel{}
		if ch.KeepReturn(&c.r, true); ch.heavy != c.want {
			t.Errorf("%s: heavy is %t", name, ch.heavy)
		}
		if ch.KeepReturn(&amqp.Return{}, true); ch.heavy {
			t.Errorf("%s: it is heavy after a small one", name)
		}
	}
}
