"""/v1/admin/price-books, /v1/admin/contracts, /v1/admin/billing-accounts"""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, timedelta
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from billing.ids import BOOK, CONTRACT, decode
from billing.months import month_of, next_month
from billing.pricing import accounts, books, contracts
from billing.pricing.models import ChargeBook, Contract
from billing.pricing.preview import preview
from cells.contract import Scope
from controlplane.api.base import ApiView, with_etag
from controlplane.api.documents import page_of
from controlplane.api.forms import Because
from controlplane.api.idempotency import once
from controlplane.api.money_documents import (
    BillingAccountDocument,
    ContractDocument,
    PriceBookDocument,
    PricePreviewDocument,
    show_account,
    show_book,
    show_contract,
    show_preview,
)
from controlplane.api.money_forms import (
    EditBillingAccount,
    EndContract,
    NewContract,
    NewPriceBook,
    PreviewPriceBook,
)
from controlplane.api.pagination import keyset_page
from controlplane.api.permissions import needs
from controlplane.api.problems import bad_parameter
from controlplane.api.views.operators import OperatorView, tenant_id_of
from controlplane.errors import NotFound, invalid
from controlplane.tenants.models import tenant_uuid


def today() -> date:
    """The UTC day."""
    return datetime.now(UTC).date()


def month_named(text: str, pointer: str) -> date:
    """The month that `YYYY-MM` names, by its first day."""
    try:
        found = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC).date()
        next_month(found)
    except (ValueError, OverflowError) as e:
        raise invalid(pointer, "a month: YYYY-MM") from e
    return found


def named(prefix: str, text: str, what: str) -> uuid.UUID:
    """The uuid a path names."""
    found = decode(prefix, text)
    if found is None:
        raise NotFound(f"no such {what}")
    return found


def tenant_in_body(text: str) -> uuid.UUID:
    """The tenant a body names."""
    found = tenant_uuid(text)
    if found is None:
        raise invalid("/tenant_id", "not a tenant's id")
    return found


class PriceBooksView(OperatorView):
    scopes = needs(GET=Scope.OPERATOR, POST=Scope.OPERATOR)
    parameters = frozenset({"limit", "cursor", "currency"})
    idempotent_post = True

    @extend_schema(operation_id="list_price_books", responses=page_of(PriceBookDocument))
    def get(self, request: Request) -> Response:
        """All versions of the list prices, newest first."""
        rows = ChargeBook.objects.all()
        if "currency" in request.query_params:
            rows = rows.filter(currency=request.query_params["currency"])
        return keyset_page(request, rows, ["effective_from", "id"], show_book, newest_first=True)

    @extend_schema(operation_id="create_price_book", request=NewPriceBook, responses={201: PriceBookDocument})
    def post(self, request: Request) -> Response:
        """A new version, from a day to come on. It is never changed."""
        form = self.read(NewPriceBook)

        def create() -> Response:
            row = books.create_book(**form, today=today(), actor=self.actor)
            location = f"/v1/admin/price-books/{row.public_id}"
            return Response(show_book(row), 201, headers={"Location": location})

        return once(request, create)


class PriceBookView(OperatorView):
    scopes = needs(GET=Scope.OPERATOR)

    @extend_schema(operation_id="get_price_book", responses=PriceBookDocument)
    def get(self, request: Request, price_book_id: str) -> Response:
        """One version."""
        return Response(show_book(books.find_book(named(BOOK, price_book_id, "price book"))))


class WithdrawPriceBookView(OperatorView):
    scopes = needs(POST=Scope.OPERATOR)

    @extend_schema(operation_id="withdraw_price_book", request=Because, responses={204: None})
    def post(self, request: Request, price_book_id: str) -> Response:
        """Takes a version back that is not in force yet."""
        books.withdraw_book(
            book_id=named(BOOK, price_book_id, "price book"),
            today=today(),
            actor=self.actor,
            reason=self.read(Because)["reason"],
        )
        return Response(None, 204)


class PreviewPriceBookView(OperatorView):
    scopes = needs(POST=Scope.OPERATOR)

    @extend_schema(
        operation_id="preview_price_book", request=PreviewPriceBook, responses=PricePreviewDocument
    )
    def post(self, request: Request) -> Response:
        """What a book would have made of a month that is over. Nothing is changed."""
        form = self.read(PreviewPriceBook)
        last = month_of(month_of(today()) - timedelta(days=1))
        month = month_named(form.pop("month"), "/month") if "month" in form else last
        if month > last:
            raise invalid("/month", "is not over")
        book = books.drafted(name="preview", effective_from=month, **form)
        return Response(show_preview(preview(book, month)))


class ContractsView(OperatorView):
    scopes = needs(GET=Scope.OPERATOR, POST=Scope.OPERATOR)
    parameters = frozenset({"limit", "cursor", "tenant_id"})
    idempotent_post = True

    @extend_schema(operation_id="list_contracts", responses=page_of(ContractDocument))
    def get(self, request: Request) -> Response:
        """What tenants were promised, newest first."""
        rows = Contract.objects.all()
        if "tenant_id" in request.query_params:
            rows = rows.filter(tenant_id=_tenant_asked_for(request))
        return keyset_page(request, rows, ["id"], show_contract, newest_first=True)

    @extend_schema(operation_id="create_contract", request=NewContract, responses={201: ContractDocument})
    def post(self, request: Request) -> Response:
        """A promise of prices, a minimum or both, from a day on that was not invoiced."""
        form = self.read(NewContract)
        form["tenant_id"] = tenant_in_body(form["tenant_id"])

        def create() -> Response:
            row = contracts.create_contract(**form, actor=self.actor)
            location = f"/v1/admin/contracts/{row.public_id}"
            return Response(show_contract(row), 201, headers={"Location": location})

        return once(request, create)


class ContractView(OperatorView):
    scopes = needs(GET=Scope.OPERATOR)

    @extend_schema(operation_id="get_contract", responses=ContractDocument)
    def get(self, request: Request, contract_id: str) -> Response:
        """One promise."""
        found = contracts.find_contract(named(CONTRACT, contract_id, "contract"))
        self.reads_of(found.tenant_id)
        return Response(show_contract(found))


class EndContractView(OperatorView):
    scopes = needs(POST=Scope.OPERATOR)

    @extend_schema(operation_id="end_contract", request=EndContract, responses=ContractDocument)
    def post(self, request: Request, contract_id: str) -> Response:
        """Says from which day on it no longer holds."""
        found = contracts.end_contract(
            contract_id=named(CONTRACT, contract_id, "contract"), **self.read(EndContract), actor=self.actor
        )
        return Response(show_contract(found))


class AnyBillingAccountView(OperatorView):
    scopes = needs(GET=Scope.OPERATOR, PATCH=Scope.OPERATOR)

    @extend_schema(operation_id="get_any_billing_account", responses=BillingAccountDocument)
    def get(self, request: Request, tenant: str) -> Response:
        """In which currency, under which name and with which taxes a tenant is billed."""
        found = accounts.account_of(tenant_id_of(tenant))
        return with_etag(show_account(found), found.version)

    @extend_schema(
        operation_id="edit_billing_account", request=EditBillingAccount, responses=BillingAccountDocument
    )
    def patch(self, request: Request, tenant: str) -> Response:
        """Changes what is given. Invoices that are final keep what they say."""
        changes = self.read(EditBillingAccount)
        reason = changes.pop("reason")
        found = accounts.edit_account(
            tenant_id=tenant_id_of(tenant),
            changes=changes,
            expected_version=self.expected_version(),
            actor=self.actor,
            reason=reason,
        )
        return with_etag(show_account(found), found.version)


class BillingAccountView(ApiView):
    scopes = needs(GET=Scope.USAGE_READ)

    @extend_schema(operation_id="get_billing_account", responses=BillingAccountDocument)
    def get(self, request: Request) -> Response:
        """In which currency, under which name and with which taxes you are billed."""
        found = accounts.account_of(self.tenant_id)
        return with_etag(show_account(found), found.version)


def _tenant_asked_for(request: Request) -> Any:
    found = tenant_uuid(request.query_params["tenant_id"])
    if found is None:
        raise bad_parameter("tenant_id", "not a tenant's id")
    return found
