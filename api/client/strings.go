package client

import "google.golang.org/protobuf/reflect/protoreflect"

// MapStrings puts in the place of every string of a message what change makes of
// it: in its lists and in the messages below it too, and the keys and values of
// maps that have both.
func MapStrings(m protoreflect.Message, change func(field protoreflect.FieldDescriptor, text string) string) {
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		changed := func(text string) protoreflect.Value { return protoreflect.ValueOfString(change(field, text)) }
		isString, isMessage := field.Kind() == protoreflect.StringKind, field.Kind() == protoreflect.MessageKind
		switch {
		case field.IsMap() && field.MapKey().Kind() == protoreflect.StringKind && field.MapValue().Kind() == protoreflect.StringKind:
			entries := m.NewField(field)
			v.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
				entries.Map().Set(changed(key.String()).MapKey(), changed(value.String()))
				return true
			})
			m.Set(field, entries)
		case field.IsList() && isString:
			for i := range v.List().Len() {
				v.List().Set(i, changed(v.List().Get(i).String()))
			}
		case field.IsList() && isMessage:
			for i := range v.List().Len() {
				MapStrings(v.List().Get(i).Message(), change)
			}
		case field.IsMap(), field.IsList():
		case isMessage:
			MapStrings(v.Message(), change)
		case isString:
			m.Set(field, changed(v.String()))
		}
		return true
	})
}
