// Package traffic shows the messages that the router passes to whoever wants to
// see them. While nobody does it costs a look at one pointer a message; whoever
// reads too slowly loses messages, hears how many, and delays nobody.
package traffic
