package devenv

// AtEnd has Main call a function when all tests of the process are over: it closes a server that several of them use.
func AtEnd(close func() error) { shared.add(close) }
