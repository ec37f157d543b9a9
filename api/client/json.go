package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// StatusJSON returns a status as compact JSON with the field names of the
// protobuf JSON mapping, nothing left out. Other than in that mapping all
// integers are numbers: theirs are far from where a number would lose digits.
func StatusJSON(s *Status) ([]byte, error) {
	var b bytes.Buffer
	if err := writeMessage(&b, s.ProtoReflect()); err != nil {
		return nil, fmt.Errorf("encoding the status: %w", err)
	}
	return b.Bytes(), nil
}

func writeMessage(b *bytes.Buffer, m protoreflect.Message) error {
	if strings.HasPrefix(string(m.Descriptor().FullName()), "google.protobuf.") {
		raw, err := protojson.Marshal(m.Interface()) // times and durations
		b.Write(raw)
		return err
	}
	b.WriteByte('{')
	fields, first := m.Descriptor().Fields(), true
	for i := range fields.Len() {
		field := fields.Get(i)
		// What is optional is told where it is set, as in the mapping.
		if field.ContainingOneof() != nil && !m.Has(field) {
			continue
		}
		if !first {
			b.WriteByte(',')
		}
		first = false
		fmt.Fprintf(b, "%q:", field.JSONName())
		if err := writeField(b, m, field); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

func writeField(b *bytes.Buffer, m protoreflect.Message, field protoreflect.FieldDescriptor) error {
	switch {
	case field.IsMap():
		entries := map[string]any{}
		m.Get(field).Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
			entries[key.String()] = value.Interface()
			return true
		})
		return writePlain(b, entries)
	case field.IsList():
		b.WriteByte('[')
		list := m.Get(field).List()
		for i := range list.Len() {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeValue(b, field, list.Get(i)); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	case field.Message() != nil && !m.Has(field):
		b.WriteString("null")
		return nil
	}
	return writeValue(b, field, m.Get(field))
}

func writeValue(b *bytes.Buffer, field protoreflect.FieldDescriptor, v protoreflect.Value) error {
	switch {
	case field.Message() != nil:
		return writeMessage(b, v.Message())
	case field.Enum() != nil:
		if value := field.Enum().Values().ByNumber(v.Enum()); value != nil {
			return writePlain(b, string(value.Name()))
		}
		return writePlain(b, int32(v.Enum())) // of a newer daemon
	}
	return writePlain(b, v.Interface())
}

func writePlain(b *bytes.Buffer, value any) error {
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // the line's end
	return nil
}
