// Connections to all nodes of a cluster, some of which do not answer.
package main

import (
	"errors"

	"github.com/segmentio/kafka-go"
)

// brokerConns keeps a connection to each node that was asked. It belongs to one goroutine.
type brokerConns struct {
	addrs []string // of the nodes 1, 2, 3, …
	conns map[int]*brokerConn
}

func newBrokerConns(addrs []string) *brokerConns {
	return &brokerConns{addrs: addrs, conns: map[int]*brokerConn{}}
}

func (b *brokerConns) close() {
	for _, c := range b.conns {
		c.Close()
	}
}

// ask asks a node.
func (b *brokerConns) ask(node int, question func(*brokerConn) error) error {
	c := b.conns[node]
	if c == nil {
		var err error
		if c, err = dialBroker(b.addrs[node-1]); err != nil {
			return err
		}
		b.conns[node] = c
	}
	err := question(c)
	if code := kafka.Error(0); err != nil && !errors.As(err, &code) {
		c.Close()
		delete(b.conns, node)
	}
	return err
}

// leader is the node that leads partition 0 of a topic as reported by the first that names one
// other than old; 0: none. Node old is not asked.
func (b *brokerConns) leader(topic string, old int) int {
	for node := range len(b.addrs) {
		if node++; node == old {
			continue
		}
		var leader int
		err := b.ask(node, func(c *brokerConn) (err error) {
			leader, err = c.leader(topic)
			return err
		})
		if err == nil && leader > 0 && leader != old {
			return leader
		}
	}
	return 0
}
