// Command dice is an MCP server in Go, developed behind devproxy.
package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type rollArguments struct {
	Sides int `json:"sides" jsonschema:"how many sides the die has"`
	Times int `json:"times,omitempty" jsonschema:"how often it is rolled; once if left out"`
}

func roll(_ context.Context, _ *mcp.CallToolRequest, a rollArguments) (*mcp.CallToolResult, any, error) {
	if a.Sides < 1 {
		return nil, nil, fmt.Errorf("a die has no %d sides", a.Sides)
	}
	rolled := make([]int, max(1, a.Times))
	for i := range rolled {
		rolled[i] = 1 + rand.IntN(a.Sides)
	}
	// Change this text, build, and call the tool again.
	text := fmt.Sprintf("rolled %v", rolled)
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
}

func main() {
	server := mcp.NewServer(&mcp.Implementation{Name: "dice", Version: "1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "roll", Description: "Roll a die"}, roll)

	// What goes to stderr is shown by `devproxyctl logs`; stdout is the protocol's.
	log.Print("dice: ready")
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		log.Fatal(err)
	}
}
