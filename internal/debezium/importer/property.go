package importer

// property is one setting of the input.
type property struct {
	name    string // as the rules know it: without the prefixes of Debezium Server and of Connect's producer
	written string // as it stands in its file
	file    string
	value   value
	fault   string // why its value cannot be read: "" when it can
	refused bool   // the verdict is cannot: nothing is made of it
}
