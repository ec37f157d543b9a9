package era_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/debugmcp/devproxy/daemon/era"
)

// wrap returns the outputSchema that a legacy client gets for one of a modern tool.
func wrap(t *testing.T, schema string) string {
	t.Helper()
	list := `{"tools":[{"name":"x","inputSchema":{"type":"object"},"outputSchema":` + schema + `}],"resultType":"complete"}`
	got := era.FrontOf(era.Legacy).Result(request(era.Legacy, "tools/list", ``), era.Result{Raw: []byte(list), Source: era.Modern}, nil)
	got, ok := bytes.CutPrefix(got, []byte(`{"tools":[{"name":"x","inputSchema":{"type":"object"},"outputSchema":`))
	if !ok {
		t.Fatalf("became %s", got)
	}
	return string(bytes.TrimSuffix(got, []byte(`}]}`)))
}

func TestWrapSchema(t *testing.T) {
	const before, after = `{"type":"object","properties":{"result":`, `},"required":["result"]}`
	tests := map[string]struct{ in, want string }{
		"object":             {`{"type":"object","$ref":"#"}`, `{"type":"object","$ref":"#"}`},
		"null":               {`null`, `null`},
		"boolean":            {`true`, `true`},
		"array":              {`{"type":"array", "maxItems":1.0}`, before + `{"type":"array", "maxItems":1.0}` + after},
		"no type":            {`{"anyOf":[{"type":"object"}]}`, before + `{"anyOf":[{"type":"object"}]}` + after},
		"several types":      {`{"type":["object","null"]}`, before + `{"type":["object","null"]}` + after},
		"dialect":            {`{"$schema":"https://json-schema.org/draft/2020-12/schema"}`, `{"$schema":"https://json-schema.org/draft/2020-12/schema",` + before[1:] + `{"$schema":"https://json-schema.org/draft/2020-12/schema"}` + after},
		"root":               {`{"type":"array","items":{"$ref":"#"}}`, before + `{"type":"array","items":{"$ref":"#/properties/result"}}` + after},
		"pointer":            {`{"items":{"$ref":"#/$defs/a"},"$defs":{"a":{}}}`, before + `{"items":{"$ref":"#/properties/result/$defs/a"},"$defs":{"a":{}}}` + after},
		"dynamic":            {`{"$dynamicRef":"#/x"}`, before + `{"$dynamicRef":"#/properties/result/x"}` + after},
		"anchor":             {`{"$ref":"#a"}`, before + `{"$ref":"#a"}` + after},
		"other document":     {`{"$ref":"other.json#/x"}`, before + `{"$ref":"other.json#/x"}` + after},
		"reference a number": {`{"$ref":7}`, before + `{"$ref":7}` + after},
		"escaped":            {`{"\u0024ref":"\u0023/a~1b"}`, before + `{"\u0024ref":"#/properties/result/a~1b"}` + after},
		"in lists":           {`{"anyOf":[1.0,{"$ref":"#"},[{"$ref":"#/a"}]]}`, before + `{"anyOf":[1.0,{"$ref":"#/properties/result"},[{"$ref":"#/properties/result/a"}]]}` + after},
		"values": {
			`{"const":{"$ref":"#"},"enum":[{"$ref":"#"}],"default":{"$ref":"#"},"examples":[{"$ref":"#"}]}`,
			before + `{"const":{"$ref":"#"},"enum":[{"$ref":"#"}],"default":{"$ref":"#"},"examples":[{"$ref":"#"}]}` + after,
		},
		"names": {
			`{"properties":{"default":{"$ref":"#"},"$ref":{"$ref":"#/x"},"$id":{"$ref":"#"}}}`,
			before + `{"properties":{"default":{"$ref":"#/properties/result"},"$ref":{"$ref":"#/properties/result/x"},"$id":{"$ref":"#/properties/result"}}}` + after,
		},
		"id":         {`{"$id":"https://x.example/","$ref":"#"}`, before + `{"$id":"https://x.example/","$ref":"#"}` + after},
		"inner id":   {`{"items":{"$id":"i","$ref":"#"},"not":{"$ref":"#"}}`, before + `{"items":{"$id":"i","$ref":"#"},"not":{"$ref":"#/properties/result"}}` + after},
		"anchor id":  {`{"$id":"#i","$ref":"#"}`, before + `{"$id":"#i","$ref":"#/properties/result"}` + after},
		"recursive":  {`{"$schema":"https://json-schema.org/draft/2019-09/schema","items":{"$recursiveRef":"#"}}`, `{"$schema":"https://json-schema.org/draft/2019-09/schema",` + before[1:] + `{"$schema":"https://json-schema.org/draft/2019-09/schema","items":{"$ref":"#/properties/result"}}` + after},
		"recursive2": {`{"$schema":"https://json-schema.org/draft/2019-09/schema","not":{"$ref":"#a","$recursiveRef":"#"}}`, `{"$schema":"https://json-schema.org/draft/2019-09/schema",` + before[1:] + `{"$schema":"https://json-schema.org/draft/2019-09/schema","not":{"$ref":"#a","allOf":[{"$ref":"#/properties/result"}]}}` + after},
		"recursive, anchored": {
			`{"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveAnchor":true,"$recursiveRef":"#"}`,
			`{"$schema":"https://json-schema.org/draft/2019-09/schema",` + before[1:] +
				`{"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveAnchor":true,"$recursiveRef":"#"}` + after,
		},
		"recursive, other dialect": {`{"$recursiveRef":"#"}`, before + `{"$recursiveRef":"#"}` + after},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := wrap(t, tt.in); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestWrappedSchemaMeansTheSame validates values against a schema and, wrapped, against the wrapped one.
func TestWrappedSchemaMeansTheSame(t *testing.T) {
	schemas := []string{
		`{"type":"array","items":{"anyOf":[{"type":"integer"},{"$ref":"#"}]}}`,
		`{"$schema":"https://json-schema.org/draft/2020-12/schema","anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}],` +
			`"$defs":{"node":{"type":"object","properties":{"next":{"$ref":"#"},"default":{"$ref":"#/$defs/node"}},"required":["next"]}}}`,
		`{"$schema":"https://json-schema.org/draft/2019-09/schema","type":["array","integer"],"items":{"$recursiveRef":"#"}}`,
	}
	values := []string{`1`, `null`, `[]`, `[1]`, `["a"]`, `[[1,[2]]]`, `[[1,["a"]]]`, `{"next":null}`, `{"next":{"next":1}}`, `{"next":{"next":{"next":null}}}`, `{"next":null,"default":{}}`}
	for _, schema := range schemas {
		accepted := 0
		for _, value := range values {
			plain := accepts(t, schema, value)
			wrapped := accepts(t, wrap(t, schema), `{"result":`+value+`}`)
			if plain != wrapped {
				t.Errorf("%s takes %s: %v, wrapped: %v", schema, value, plain, wrapped)
			}
			if plain {
				accepted++
			}
		}
		if accepted == 0 || accepted == len(values) {
			t.Errorf("%s tells none of the values apart", schema)
		}
	}
}

func accepts(t *testing.T, schema, value string) bool {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("s.json", doc); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("s.json")
	if err != nil {
		t.Fatalf("%v: %s", err, schema)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(value))
	if err != nil {
		t.Fatal(err)
	}
	return compiled.Validate(v) == nil
}
