package ags1.interop.parquet;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.parquet.filter2.compat.FilterCompat;
import org.apache.parquet.filter2.predicate.FilterApi;
import org.apache.parquet.filter2.predicate.FilterPredicate;
import org.apache.parquet.filter2.predicate.Operators.Column;
import org.apache.parquet.filter2.predicate.Operators.SupportsEqNotEq;
import org.apache.parquet.filter2.predicate.Operators.SupportsLtGt;
import org.apache.parquet.io.api.Binary;

/** Filter predicates from JSON: an array of {@code {column, op, value}}, all of which have to hold. */
final class Filters {
  private Filters() {}

  static FilterCompat.Filter of(Options request) {
    if (!request.has("filter")) {
      return FilterCompat.NOOP;
    }
    FilterPredicate all = null;
    for (JsonNode term : request.value("filter")) {
      FilterPredicate predicate = term(new Options(term));
      all = all == null ? predicate : FilterApi.and(all, predicate);
    }
    return all == null ? FilterCompat.NOOP : FilterCompat.get(all);
  }

  private static FilterPredicate term(Options term) {
    String column = term.text("column");
    String operator = term.text("op");
    JsonNode value = term.value("value");
    switch (term.text("type", value.isTextual() ? "string" : value.isFloatingPointNumber() ? "double" : "int64")) {
      case "string":
        return compare(operator, FilterApi.binaryColumn(column), Binary.fromString(value.asText()));
      case "double":
        return compare(operator, FilterApi.doubleColumn(column), value.asDouble());
      case "float":
        return compare(operator, FilterApi.floatColumn(column), (float) value.asDouble());
      case "int32":
        return compare(operator, FilterApi.intColumn(column), value.asInt());
      case "int64":
        return compare(operator, FilterApi.longColumn(column), value.asLong());
      default:
        throw new IllegalArgumentException("unknown type of a filter: " + term.text("type"));
    }
  }

  private static <T extends Comparable<T>, C extends Column<T> & SupportsEqNotEq & SupportsLtGt>
      FilterPredicate compare(String operator, C column, T value) {
    switch (operator) {
      case "eq":
        return FilterApi.eq(column, value);
      case "lt":
        return FilterApi.lt(column, value);
      case "le":
        return FilterApi.ltEq(column, value);
      case "gt":
        return FilterApi.gt(column, value);
      case "ge":
        return FilterApi.gtEq(column, value);
      default:
        throw new IllegalArgumentException("unknown operator: " + operator);
    }
  }
}
