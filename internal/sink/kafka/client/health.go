// Which brokers are reached, and why the others are not.

package client

import "go.uber.org/zap"

// connected counts a connection.
func (c *cluster) connected(addr string, again bool) {
	c.Connections.Add(1)
	if h := c.Options.OnConnected; h != nil {
		h(addr, again)
	}
}

// note records why a broker cannot be reached, none for the control connection; "" when it can. It
// logs what is new.
func (c *cluster) note(node int32, why string) {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	if c.down[node] == why {
		return
	}
	if why == "" {
		delete(c.down, node)
	} else {
		c.down[node] = why
	}
	c.logState()
}

// leadersChanged forgets the trouble of brokers that no longer lead a partition of ours.
func (c *cluster) leadersChanged(known *Metadata) {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	for node := range c.down {
		if node != None && !known.leads(node) {
			delete(c.down, node)
		}
	}
	c.logState()
}

// Up reports whether the cluster answers and every broker that leads a partition of ours is
// reached, and if not, why.
func (c *cluster) Up() (ok bool, why string) {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	why = c.why()
	return why == "", why
}

// why is the first reason, in the order of the nodes, the control connection's before all.
func (c *cluster) why() string {
	first := int32(-2)
	for node := range c.down {
		if first == -2 || node < first {
			first = node
		}
	}
	return c.down[first]
}

// logState writes one line when Up or its reason has changed.
func (c *cluster) logState() {
	why := c.why()
	if why == c.logged {
		return
	}
	c.logged = why
	if why == "" {
		c.Options.Log.Info("brokers connected", zap.Int("brokers", len(c.Metadata.Load().Brokers)))
		return
	}
	c.Options.Log.Warn("broker unavailable", zap.String("reason", why))
}
